"""``chat()``: put a run on the screen. A card in a notebook, streamed text in a terminal, nothing elsewhere."""

from __future__ import annotations

import asyncio
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
from agent_widgets.kernel import NotebookKernel
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
    notebook = NotebookKernel.get()
    terms = _terms(notebook, on_confirm, deadline, answer_within, budget)
    # The kernel's own, by name only where there is no other way: the handler of a click may run on a subshell's loop.
    wanted = (notebook and notebook.main_loop) or loop if loop == "kernel" else loop
    held = session if isinstance(session, Session) else session_of(agent, session, loop=wanted or "own")
    if wanted is not None:
        held.move_to(wanted)
    start = partial(_start, held, notebook, terms)
    if prompt is not None and held.waits and notebook is not None:  # its buttons come first: the prompt waits for them
        _show(held, notebook, partial(_start, held, notebook, replace(terms, deadline=None, budget=None)), None)
    if prompt is None and held.current is not None:
        return _show_again(held, notebook, start, held.current)
    if notebook is None:
        return start(prompt)
    if prompt is None and not notebook.is_terminal and not _can_go_on(held):
        return _show_composer(held, start)
    return _show(held, notebook, start, prompt)


def _terms(
    notebook: NotebookKernel | None,
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
    if limit is None and not _anybody_there(notebook):
        limit = NOBODY_SECONDS
    return _Terms(
        on_confirm=policy,
        deadline=checked_limit(defaults.deadline if deadline is None else deadline, "deadline"),
        answer_within=checked_limit(limit, "answer_within"),
        budget=checked_budget(budget),
    )


def _anybody_there(notebook: NotebookKernel | None) -> bool:
    return notebook is not None and (notebook.anybody_there or notebook.is_terminal)


def _start(
    session: Session,
    notebook: NotebookKernel | None,
    terms: _Terms,
    prompt: Inputs,
    *,
    before_start: Callable[[Run], object] | None = None,
) -> Run:
    def go_on_from(run: Run) -> Run:
        start = partial(_start, session, notebook, terms)
        inputs = run.inputs_to_resume
        return start(inputs) if notebook is None else _show(session, notebook, start, inputs)

    def prepare(run: Run) -> None:
        run.resume_with = partial(go_on_from, run)  # in the cell that asks for it, on a card of its own
        model_note = getattr(getattr(session.agent, "model", None), "note", "")
        notes = [model_note, _loop_note(session), notebook.nesting_note() if notebook else ""]
        run.note = " ".join(filter(None, map(str, notes)))
        if before_start is not None:
            before_start(run)

    run = session.run(
        prompt,
        deadline=terms.deadline,
        answer_within=terms.answer_within,
        budget=terms.budget,
        waiter=notebook.waiter if notebook else None,
        on_pause=partial(_decide, notebook, terms.on_confirm),
        before_start=prepare,
    )
    if notebook is not None:
        notebook.watch(run)
    return run


def _loop_note(session: Session) -> str:
    """What it costs to be carried by the kernel's own loop, once."""
    if LoopThread.carries(session.loop) or any(run.loop is session.loop for run in session.runs):
        return ""
    return LOOP_NOTE


def _decide(notebook: NotebookKernel | None, on_confirm: OnConfirm, run: Run) -> None:
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
            if not _anybody_there(notebook):
                run.deny(reason=NOBODY_THERE)


def _can_go_on(session: Session) -> bool:
    """Whether the conversation stopped in the middle, or waits: then a chat without a prompt continues it."""
    state = session.state
    if state is None or not state.context:
        return False
    return (
        bool(state.waiting()) or state.context[-1].role == "user" or state.context[-1].finished_reason in ("interrupted", "error")
    )


def _show(session: Session, notebook: NotebookKernel, start: Callable[..., Run], prompt: Inputs) -> Run:
    """Start, on a card of its own, or as text in a terminal."""
    if notebook.is_terminal:
        return start(prompt, before_start=_print_to_terminal)
    card = _card(session, start, composer=False)

    def show(run: Run) -> None:
        card.attach(run)
        card.publish()
        _display(card)

    return start(prompt, before_start=show)


def _show_again(session: Session, notebook: NotebookKernel | None, start: Callable[..., Run], run: Run) -> Run:
    """A second card for a run that is running, or that waits."""
    if notebook is not None and not notebook.is_terminal:
        card = _card(session, start, composer=False)

        def attach() -> None:  # on the run's loop, between two of its events
            card.attach(run)
            card.publish()

        async def attach_there() -> None:
            attach()

        if on_loop(session.loop):
            attach()
        else:
            asyncio.run_coroutine_threadsafe(attach_there(), session.loop).result(SHOW_SECONDS)
        _display(card)
    return run


def _show_composer(session: Session, start: Callable[..., Run]) -> None:
    """A card with a box to type in; what is typed runs on it."""
    _display(_card(session, start, composer=True))


def _card(session: Session, start: Callable[..., Run], *, composer: bool) -> AgentWidget:
    return AgentWidget(session, lambda text, card: start(text, before_start=card.attach), composer=composer)


def _display(card: AgentWidget) -> None:
    """The card and, back to back, its static twin: what a saved notebook shows when there is no live view."""
    ipython: Any = import_module("IPython.display")  # only in a notebook, and without types
    ipython.display(card)
    twin = ipython.DisplayHandle()
    twin.display(card.static(), raw=True)
    card.on_static = partial(twin.update, raw=True)


def _print_to_terminal(run: Run) -> None:
    run.listen(_print)


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
