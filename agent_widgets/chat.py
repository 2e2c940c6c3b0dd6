"""``chat()``: put a run on the screen: a card in a notebook, streamed text in a terminal, nothing elsewhere.

``card()``: the card as an object, for those who place it themselves.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, cast, get_args, overload

from agent_widgets import events as ev
from agent_widgets.backends import Inputs
from agent_widgets.budgets import Budget, checked_budget
from agent_widgets.decisions import OnConfirm
from agent_widgets.errors import ConfirmationRequiredError, InputError
from agent_widgets.hosts import Host, MarimoCell, Page, current_host
from agent_widgets.loops import LoopName, LoopThread, on_loop
from agent_widgets.messages import Msg
from agent_widgets.questions import checked_limit
from agent_widgets.runs import Run
from agent_widgets.sessions import Session, session_of
from agent_widgets.settings import AgentWidgets
from agent_widgets.widget import AgentWidget

SHOW_SECONDS = 5.0
"""How long the loop that carries a run may take to put it on a second card."""

NOBODY_SECONDS = 60.0
"""How long a question waits where nobody is there: another cell, or a thread, may bring the result that it asks for."""

LOOP_NOTE = "On the kernel's own loop: while a cell blocks (without await), this agent and its Stop stand still."
NOBODY_THERE = "Nobody is there to ask (no page, no terminal), so the call was denied by default."


@dataclass(frozen=True, slots=True)
class _Terms:
    """On which terms a run is started."""

    on_confirm: OnConfirm
    deadline: float | None
    answer_within: float | None
    budget: Budget | None


@overload
def chat(
    agent: object,
    prompt: str | Msg | Sequence[Msg],
    *,
    session: str | Session | None = None,
    on_confirm: OnConfirm | None = None,
    deadline: float | None = None,
    answer_within: float | None = None,
    budget: Budget | None = None,
    loop: LoopName | None = None,
) -> Run: ...
@overload
def chat(
    agent: object,
    prompt: None = None,
    *,
    session: str | Session | None = None,
    on_confirm: OnConfirm | None = None,
    deadline: float | None = None,
    answer_within: float | None = None,
    budget: Budget | None = None,
    loop: LoopName | None = None,
) -> Run | None: ...
def chat(
    agent: object,
    prompt: str | Msg | Sequence[Msg] | None = None,
    *,
    session: str | Session | None = None,
    on_confirm: OnConfirm | None = None,
    deadline: float | None = None,
    answer_within: float | None = None,
    budget: Budget | None = None,
    loop: LoopName | None = None,
) -> Run | None:
    """Put a run of ``agent`` into this cell; the cell ends at once, the run goes on. ``await`` it to wait for the reply.

    Args:
        agent: An ``Agent``, or a foreign agent that an adapter knows. Its session is found again by the next cell.
        prompt: What to ask. Without one: show the run that is running or waits once more; go on with what was stopped; for
            a fresh or finished conversation, a card with a box to type in (there is no run yet: the result is ``None``).
        session: A session, or the name for a new one.
        on_confirm: Who decides about calls that need confirmation: "ask" (a person; denied at once where nobody is there),
            "deny", "allow", or "raise" (the run fails); ``None``: the configured one, "ask" by default.
        deadline: Seconds after which the run is stopped, as a person would; ``None``: the configured limit, by default none.
        answer_within: Seconds after which a question is given up: the call is denied, an outside result is an error; the model
            reads that nobody answered. ``None``: the configured limit; by default none, and 60 s where nobody is there.
            ``math.inf``, here and for ``deadline``: no limit.
        budget: What the run may use before it is stopped, instead of the agent's own budget; ``Budget()`` lifts that one.
        loop: Who carries the runs of this session from now on. "own": a thread beside the kernel, so that streaming and Stop go
            on while other cells are busy. "kernel": the loop that the kernel itself runs on, for an agent that is tied to it by
            an HTTP client, a database pool or a lock that cells have used. It costs this: while a cell blocks (``time.sleep``, a
            computation, anything without ``await``) the run stands still, and so does its Stop; ``run.wait()`` and
            ``agent.reply_sync()`` need the extra ``nest``; and where nobody is there, a run that is not awaited does not end
            inside its cell. ``None``: as it is; a new session has "own". Python without threads (JupyterLite) has one loop.

    Raises:
        InputError: not an agent, an argument that cannot work, or another ``loop`` while a run of the session is not over.
    """
    host = current_host()
    terms = _terms(host, on_confirm, deadline, answer_within, budget)
    # The kernel's own, by name only where there is no other way: the handler of a click may run on a subshell's loop.
    wanted = (host and host.main_loop) or loop if loop == "kernel" else loop
    held = session if isinstance(session, Session) else session_of(agent, session, loop=wanted or "own")
    if wanted is not None:
        held.move_to(wanted)
    start = partial(_start, held, host, terms)
    if prompt is not None and held.waits and host is not None:  # its buttons come first: the prompt waits for them
        _show(held, host, partial(_start, held, host, replace(terms, deadline=None, budget=None)), None)
    if prompt is None and held.current is not None:
        return _show_again(held, host, start, held.current)
    if host is None:
        return start(prompt)
    if prompt is None and not host.shows_text and not _can_go_on(held):
        return _show_composer(held, start)
    return _show(held, host, start, prompt)


def card(
    agent: object,
    prompt: str | Msg | Sequence[Msg] | None = None,
    *,
    session: str | Session | None = None,
    on_confirm: OnConfirm | None = None,
    deadline: float | None = None,
    answer_within: float | None = None,
    budget: Budget | None = None,
) -> AgentWidget:
    """The card of a conversation, to be placed by you: in a Panel or Solara app, in a layout of ipywidgets, in marimo.

    It shows all runs of the agent's session so far, and has a box to type in. It is an ipywidget (an anywidget); its runs are
    ``card.session.runs``. Make one for each page that shows it. Where no IPython runs the code, somebody is taken to be there.

    Args:
        agent: An ``Agent``, or a foreign agent that an adapter knows. Its session is found again.
        prompt: What to ask at once; without one, the person begins.
        session: A session, or the name for a new one.
        on_confirm: Who decides about calls that need confirmation, as in ``chat``.
        deadline: Seconds after which a run that starts here is stopped, as in ``chat``.
        answer_within: Seconds after which a question is given up, as in ``chat``.
        budget: What a run that starts here may use before it is stopped, instead of the agent's own budget.

    Raises:
        InputError: not an agent, or an argument that cannot work.
    """
    host = current_host() or Page()
    terms = _terms(host, on_confirm, deadline, answer_within, budget)
    held = session if isinstance(session, Session) else session_of(agent, session)
    start = partial(_start, held, host, terms)
    made = AgentWidget(held, lambda inputs, card: start(inputs, card=card), composer=True)
    _attach(made, held.runs)
    if prompt is not None:
        start(prompt, card=made)
    return made


def _terms(
    host: Host | None,
    on_confirm: OnConfirm | None,
    deadline: float | None,
    answer_within: float | None,
    budget: Budget | None,
) -> _Terms:
    """What was asked for, and for the rest what is configured.

    Raises:
        InputError: something that cannot work.
        TraitError: a config file sets something that cannot be.
    """
    defaults = AgentWidgets.get()
    policy = cast("OnConfirm", defaults.on_confirm) if on_confirm is None else on_confirm
    if policy not in get_args(OnConfirm):
        raise InputError(f"on_confirm is {policy!r}; it must be one of {', '.join(get_args(OnConfirm))}.")
    limit = defaults.answer_within if answer_within is None else answer_within
    if limit is None and not _anybody_there(host):
        limit = NOBODY_SECONDS
    return _Terms(
        on_confirm=policy,
        deadline=checked_limit(defaults.deadline if deadline is None else deadline, "deadline"),
        answer_within=checked_limit(limit, "answer_within"),
        budget=checked_budget(budget),
    )


def _anybody_there(host: Host | None) -> bool:
    return host is not None and (host.anybody_there or host.is_terminal)


def _start(
    session: Session,
    host: Host | None,
    terms: _Terms,
    prompt: Inputs,
    *,
    card: AgentWidget | None = None,
    before_start: Callable[[Run], object] | None = None,
) -> Run:
    """Start a run, or queue it. On ``card``, if it is the conversation's own, and so does what is resumed from it."""

    def go_on_from(run: Run) -> Run:
        start = partial(_start, session, host, terms, card=card)
        inputs = run.inputs_to_resume
        return start(inputs) if host is None or card is not None else _show(session, host, start, inputs)

    def prepare(run: Run) -> None:
        run.resume_with = partial(go_on_from, run)  # in the cell that asks for it, on a card of its own
        if card is not None:
            card.attach(run)
        model_note = getattr(getattr(session.agent, "model", None), "note", "")
        notes = [model_note, _loop_note(session), host.nesting_note() if host else ""]
        run.note = " ".join(filter(None, map(str, notes)))
        if before_start is not None:
            before_start(run)

    run = session.run(
        prompt,
        deadline=terms.deadline,
        answer_within=terms.answer_within,
        budget=terms.budget,
        waiter=host.waiter if host else None,
        on_pause=partial(_decide, host, terms.on_confirm),
        before_start=prepare,
    )
    if host is not None:
        host.watch(run)
    return run


def _loop_note(session: Session) -> str:
    """What it costs to be carried by the kernel's own loop, once."""
    if LoopThread.carries(session.loop) or any(run.loop is session.loop for run in session.runs):
        return ""
    return LOOP_NOTE


def _decide(host: Host | None, on_confirm: OnConfirm, run: Run) -> None:
    """What happens when the reply pauses: nothing where a person can click."""
    match on_confirm:
        case "allow":
            run.approve()
        case "deny":
            run.deny(reason="Denied by the notebook's own policy (on_confirm='deny').")
        case "raise":
            if asking := tuple(call.name for call in run.transcript.waiting if call.state == "asking"):
                run.stop(reason="a call needs a confirmation", raises=ConfirmationRequiredError(asking))
        case "ask":
            if not _anybody_there(host):
                run.deny(reason=NOBODY_THERE)


def _can_go_on(session: Session) -> bool:
    """Whether the conversation stopped in the middle, or waits: then a chat without a prompt continues it."""
    state = session.state
    if state is None or not state.context:
        return False
    return (
        bool(state.waiting()) or state.context[-1].role == "user" or state.context[-1].finished_reason in ("interrupted", "error")
    )


def _show(session: Session, host: Host, start: Callable[..., Run], prompt: Inputs) -> Run:
    """Start, on a card of its own, or as text where there is no page."""
    if host.shows_text:
        return start(prompt, before_start=_print_to_terminal)
    made = _card(session, start, composer=False)

    def show(run: Run) -> None:
        made.attach(run)
        made.publish()
        _display(made)

    return start(prompt, before_start=show)


def _show_again(session: Session, host: Host | None, start: Callable[..., Run], run: Run) -> Run:
    """A second card for a run that is running, or that waits."""
    if host is not None and not host.shows_text:
        made = _card(session, start, composer=False)
        _attach(made, (run,))
        _display(made)
    return run


def _show_composer(session: Session, start: Callable[..., Run]) -> None:
    """A card with a box to type in; what is typed runs on it."""
    _display(_card(session, start, composer=True))


def _card(session: Session, start: Callable[..., Run], *, composer: bool) -> AgentWidget:
    return AgentWidget(session, lambda text, card: start(text, before_start=card.attach), composer=composer)


def _attach(made: AgentWidget, runs: Sequence[Run]) -> None:
    """Put runs that have begun on a card, on their loop: between two of their events."""

    def attach() -> None:
        for run in runs:
            made.attach(run)
        made.publish()

    async def attach_there() -> None:
        attach()

    if runs and on_loop(made.session.loop):
        attach()
    elif runs:
        asyncio.run_coroutine_threadsafe(attach_there(), made.session.loop).result(SHOW_SECONDS)


def _display(card: AgentWidget) -> None:
    """The card and, back to back, its static twin: what a saved notebook shows when there is no live view."""
    if (cell := MarimoCell.get()) is not None:
        cell.show(card)
        return
    ipython: Any = import_module("IPython.display")  # only in a notebook, and without types
    ipython.display(card)
    twin = ipython.DisplayHandle()
    twin.display(card.static(), raw=True)
    card.on_static = partial(twin.update, raw=True)


def _print_to_terminal(run: Run) -> None:
    here = contextvars.copy_context()  # not a tool's: what is printed there is the tool's own, and captured
    run.listen(lambda run, event: here.run(_print, run, event))


def _print(_run: Run, event: ev.Event | None) -> None:
    """Stream a run to a terminal. Of sub-agents only the calls and questions: their texts would mix."""
    if event is not None and ev.agent_path(event) and isinstance(event, ev.TextBlockDeltaEvent | ev.ReplyEndEvent):
        return
    match event:
        case ev.TextBlockDeltaEvent():
            sys.stdout.write(event.delta)
            sys.stdout.flush()
        case ev.ToolCallStartEvent():
            sys.stdout.write(f"\n[{event.tool_call_name} …]")
        case ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"name": "waits", "text": str(text)}):
            sys.stdout.write(f" [waits {text}]" if text else "")
        case ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"text": str(text)}):  # of another process: others print where they are
            sys.stdout.write(text)
        case ev.ToolResultEndEvent():
            sys.stdout.write(f" {event.state}\n")
        case ev.RequireUserConfirmEvent():
            names = ", ".join(f"{call.name}({call.input})" for call in event.tool_calls)
            sys.stdout.write(f"\n[waits for a decision: {names}]\n")
            sys.stdout.flush()
        case ev.RequireExternalExecutionEvent():
            calls = ", ".join(f"run.answer({call.id!r}, …) for {call.name}({call.input})" for call in event.tool_calls)
            sys.stdout.write(f"\n[waits for a result: {calls}]\n")
            sys.stdout.flush()
        case ev.ReplyEndEvent():
            sys.stdout.write(f"\n[{event.finished_reason}]\n")
            sys.stdout.flush()
        case _:
            pass
