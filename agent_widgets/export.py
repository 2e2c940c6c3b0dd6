"""A transcript without a kernel: HTML, Markdown and text for the saved notebook, GitHub and the terminal.

HTML is plain (div, pre, b, details) and uses classes only: JupyterLab's sanitizer strips ``data-*`` and, in notebooks that
are not trusted, ``<style>``. Nothing in it runs and nothing is fetched.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from markdown_it import MarkdownIt
from markdown_it.token import Token

from agent_widgets.messages import (
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)
from agent_widgets.printed import ToolOutput
from agent_widgets.transcript import Transcript
from agent_widgets.wire import RunView

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def _fence(_renderer: object, tokens: Sequence[Token], index: int, *_: object) -> str:
    """A code block without the classes that a highlighter would want: nothing highlights here, and it is saved with every run."""
    return f"<pre>{html.escape(tokens[index].content, quote=False)}</pre>\n"


_MARKDOWN.add_render_rule("fence", _fence)

PLAIN_LIMIT = 500
"""Characters of the twin's plain text."""

_OUTCOMES = {
    # What is read here is read later, most often without the kernel: nothing is said to be going on.
    "queued": "had not begun",
    "running": "had not ended",
    "stopping": "was being stopped",
    "paused": "waited for a decision",
    "completed": "done",
    "interrupted": "stopped",
    "exceed_max_iters": "stopped: too many steps",
    "error": "failed",
}
_ENDED = ("completed", "interrupted", "exceed_max_iters", "error")
_SOURCES = {
    "user": "by you",
    "code": "from code",
    "kernel": "with the kernel's stop button",
    "deadline": "at its deadline",
    "budget": "at the end of its budget",
}


def to_text(view: RunView) -> str:
    """The run as plain text."""
    lines = [f"> {view.prompt}", ""] if view.prompt else []
    for block in view.transcript.message.content:
        lines += _block_lines(block, view.transcript)
    return "\n".join([*lines, *(f"({notice})" for notice in view.transcript.notices), f"[{summary(view)}]"])


def to_markdown(view: RunView) -> str:
    """The run as Markdown; its text is the model's own Markdown."""
    parts = ["> " + view.prompt.replace("\n", "\n> ")] if view.prompt else []
    for block in view.transcript.message.content:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif lines := _block_lines(block, view.transcript):
            parts.append("```text\n" + "\n".join(lines).replace("```", "'''") + "\n```")
    return "\n\n".join([*parts, *(f"*{notice}*" for notice in view.transcript.notices), f"*{summary(view)}*"])


def to_html(views: Sequence[RunView], css_id: str = "", seq: int = 0, note: str = "") -> str:
    """The runs of a card as HTML.

    Args:
        views: The runs.
        css_id: The card's, by which the live card hides it; without one it is nobody's twin and always shown.
        seq: Up to which message of the card it goes: by it a page finds out that the twin in its document is too old.
        note: A sentence for the end.
    """
    runs = "".join(_run_html(view) for view in views) + (f"<p><i>{html.escape(note)}</i></p>" if note else "")
    # In trusted notebooks this hides the line "Error displaying widget: model not found" of the card's own output. It says how
    # deep to look: otherwise each word that streams into a live card makes the page look through all that the card shows.
    twin_follows = f":has(+ .jp-OutputArea-child > * > .aw-run-{css_id})"
    no_card = ":not(:has(> * > .aw-card, > * > * > .aw-card))"
    hides = f".jp-OutputArea-child{twin_follows}{no_card} {{ display: none; }}"
    style = (
        f"<style>{hides if css_id else ''}"
        ".aw-static { max-width: 60rem; line-height: 1.5; } "
        ".aw-static pre { white-space: pre-wrap; overflow-wrap: anywhere; }</style>"
    )
    twin = f" aw-run-{css_id} aw-at-{seq}" if css_id else ""
    return f'<div class="aw-static{twin}">{style}{runs}</div>'


def static_bundle(
    views: Sequence[RunView], css_id: str = "", seq: int = 0, *, session: str = "", written: datetime | None = None
) -> dict[str, str]:
    """The MIME bundle of the static twin: the whole transcript once, as HTML, and the beginning as plain text.

    Of a run that has not ended it says when it was written, and how the session of that name gives the rest: a page that is
    closed, or reloaded, may save the beginning of a run for ever. ``css_id`` and ``seq`` as in ``to_html``.

    No ``text/markdown``: JupyterLab, nbconvert (to Markdown too) and GitHub take the HTML, and a second copy would be as long
    as the transcript.
    """
    text = "\n\n".join(to_text(view) for view in views)
    if len(text) > PLAIN_LIMIT:
        text = f"{text[:PLAIN_LIMIT]}\n[{len(text) - PLAIN_LIMIT:,} characters more in the HTML output]"
    note = _unfinished(views, session, written or datetime.now(UTC))
    return {"text/html": to_html(views, css_id, seq, note), "text/plain": f"{text}\n({note})" if note else text}


def _unfinished(views: Sequence[RunView], session: str, written: datetime) -> str:
    if all(view.status.get("state") in _ENDED for view in views):
        return ""
    return (
        f"Written on {written:%Y-%m-%d at %H:%M} UTC, before the run had ended. What came later is not in this file; while the "
        f"kernel lives, %agent show {session} writes the whole transcript into a cell (%load_ext agent_widgets brings it)."
    )


def summary(view: RunView) -> str:
    """One line: whose reply, how it ended, how long it took, what it cost."""
    message, state = view.transcript.message, str(view.status.get("state", ""))
    parts = [f"{message.name} · {_OUTCOMES.get(state, state)}{_why(message) if state == 'interrupted' else ''}"]
    if message.error is not None:
        parts.append(message.error.message)
    if view.transcript.model:
        parts.append(view.transcript.model)
    parts += _usage(message.usage)
    elapsed = view.status.get("elapsed")
    if isinstance(elapsed, int | float):
        parts.append(f"{elapsed:.1f} s")
    return " · ".join(parts)


def _why(message: Msg) -> str:
    source, stop_ms, reason = message.metadata.get("source"), message.metadata.get("stop_ms"), message.metadata.get("reason")
    text = f" {_SOURCES.get(source, source)}" if isinstance(source, str) else ""
    text += f" after {stop_ms:.0f} ms" if isinstance(stop_ms, int | float) else ""
    return f"{text} ({reason})" if reason else text


def _usage(usage: Usage | None) -> list[str]:
    if usage is None:
        return []
    if usage.unknown_calls and not usage.output_tokens:
        return ["tokens unknown"]
    more = " (and more, not reported)" if usage.unknown_calls else ""
    return [f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{more}"]


def _block_lines(block: object, transcript: Transcript) -> list[str]:
    match block:
        case TextBlock():
            return [block.text, ""]
        case ThinkingBlock():
            return [f"(thought: {block.thinking.strip()})", ""] if block.thinking.strip() else []
        case HintBlock(hint=str(hint), source="user"):
            return [f"> {hint}", ""]
        case HintBlock(hint=str(hint)):
            return [f"(hint: {hint})", ""]
        case ToolCallBlock():
            what = "a result" if block.state == "submitted" else "a decision"
            waits = f" <- waits for {what}{_until(block)}" if block in transcript.waiting else ""
            changed = (
                [] if block.original_input is None else [f"  changed by a person; the model had asked for {block.original_input}"]
            )
            below = (line for child in _children(transcript, block.id) for line in _child_lines(child))
            return [f"{block.name}({block.input}){waits}", *changed, *_printed(transcript.outputs, block.id), *below]
        case ToolResultBlock():
            reason = block.metadata.get("reason")
            # What a sub-agent said is shown where it said it: its caller got the same text.
            text = "" if _children(transcript, block.id) and block.state != "error" else f": {block.text()}"
            return [f"  {block.state}{f' ({reason})' if reason else ''}{text}", ""]
        case DataBlock():
            return [f"[{block.source.media_type}]", ""]
        case _:
            return []


def _until(call: ToolCallBlock) -> str:
    return "" if call.answer_by is None else f" until {call.answer_by[:19].replace('T', ' ')} UTC"


def _children(transcript: Transcript, call_id: str) -> list[Transcript]:
    return [child.transcript for child in transcript.children if child.call_id == call_id]


def _child_lines(child: Transcript) -> list[str]:
    """A sub-agent's transcript, indented below the call that it works for."""
    lines = [f"{child.message.name} · {_child_state(child)}"]
    lines += (line for block in child.message.content for line in _block_lines(block, child))
    return [f"  : {line}".rstrip() for line in "\n".join(lines).rstrip("\n").split("\n")]


def _child_state(child: Transcript) -> str:
    state = child.message.finished_reason or ("paused" if child.waiting else "running")
    return _OUTCOMES[state]


def _printed(outputs: Iterable[ToolOutput], call_id: str) -> list[str]:
    lines: list[str] = []
    for output in outputs:
        if output.call_id == call_id:
            text = output.text if output.data is None else str(output.data.get("text/plain", ""))
            text = f"waits {text}" if output.name == "waits" else text
            lines += [f"  | {line}" for line in text.rstrip("\n").split("\n")]
    return lines


def _run_html(view: RunView) -> str:
    prompt = f"<blockquote>{html.escape(view.prompt)}</blockquote>" if view.prompt else ""
    body = "".join(_block_html(block, view.transcript) for block in view.transcript.message.content)
    notices = "".join(f"<p>{html.escape(notice)}</p>" for notice in view.transcript.notices)
    return f"{prompt}{body}{notices}<p><i>{html.escape(summary(view))}</i></p>"


def _block_html(block: object, transcript: Transcript) -> str:
    match block:
        case TextBlock():
            return _MARKDOWN.render(block.text).replace(">\n<", "><")
        case ThinkingBlock():
            text = html.escape(block.thinking.strip())
            return f"<details><summary>Thought</summary><pre>{text}</pre></details>" if text else ""
        case HintBlock(hint=str(hint), source="user"):
            return f"<blockquote>{html.escape(hint)}</blockquote>"
        case DataBlock(source=Base64Source(media_type="image/png" | "image/jpeg" | "image/gif" | "image/webp") as source):
            name, data = html.escape(block.name or "image"), html.escape(source.data)
            return f'<img alt="{name}" src="data:{source.media_type};base64,{data}">'
        case ToolCallBlock() if _children(transcript, block.id):
            lines = html.escape("\n".join([f"{block.name}({block.input})", *_printed(transcript.outputs, block.id)]))
            return f"<pre>{lines}</pre>" + "".join(_child_html(child) for child in _children(transcript, block.id))
        case ToolResultBlock(output=tuple() as output):
            return "".join(_block_html(part, transcript) for part in output)
        case _:
            lines = "\n".join(_block_lines(block, transcript)).rstrip()
            return f"<pre>{html.escape(lines)}</pre>" if lines else ""


def _child_html(child: Transcript) -> str:
    head = html.escape(f"{child.message.name} · {_child_state(child)}")
    body = "".join(_block_html(block, child) for block in child.message.content)
    return f"<details open><summary>{head}</summary><blockquote>{body}</blockquote></details>"
