"""``%load_ext agent_widgets``: ``%%agent`` asks an agent and waits, ``%agent`` looks after what runs.

``%%agent`` is an awaiting cell: an input transformer turns it into one line of code that awaits, so cells keep their order
under Run All without nest_asyncio.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from importlib import import_module
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from agent_widgets.agent import Agent
from agent_widgets.backends import Backend
from agent_widgets.chat import chat
from agent_widgets.decisions import OnConfirm
from agent_widgets.errors import InputError
from agent_widgets.export import static_bundle, to_text
from agent_widgets.kernel import NotebookKernel
from agent_widgets.permissions import told
from agent_widgets.runs import Run
from agent_widgets.sessions import Session, sessions
from agent_widgets.settings import AgentWidgets

DEFAULT_NAME = "assistant"
_USAGE = """%agent list                 the sessions of this kernel, and what is allowed without asking
%agent stop [NAME]          stop what runs or waits
%agent approve [NAME]       let the waiting calls run
%agent deny [REASON]        refuse the waiting calls; the model reads the reason
%agent resume [NAME]        go on after a stop, without a new message
%agent show [NAME]          the whole transcript in this cell, as it is now
%agent save FILE [NAME]     write a session's state to a file
%agent load FILE [NAME]     read it back

%%agent [NAME] [--no-wait] [--model MODEL] [--deny | --allow]
your prompt                 NAME: a variable that holds an agent, or a session's name; made if there is none"""


class _Parser(argparse.ArgumentParser):
    """argparse that explains itself instead of ending the kernel."""

    def error(self, message: str) -> Any:
        raise UsageError(f"%%agent: {message}\n\n{_USAGE}")


def _parser() -> _Parser:
    parser = _Parser(prog="%%agent", add_help=False)
    parser.add_argument("name", nargs="?", default=DEFAULT_NAME)
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--model")
    decide = parser.add_mutually_exclusive_group()
    decide.add_argument("--deny", dest="on_confirm", action="store_const", const="deny")
    decide.add_argument("--allow", dest="on_confirm", action="store_const", const="allow")
    return parser


def agent_cell(lines: list[str]) -> list[str]:
    """The input transformer: ``%%agent …`` as one line that awaits. Other cells are given back as they are.

    So is one that cannot await, below ``%%time`` or ``%%capture`` or after ``%autoawait off``: there the magic itself blocks.
    """
    if not lines or not f"{lines[0].rstrip()} ".startswith("%%agent "):
        return lines
    notebook = NotebookKernel.get()
    if notebook is None or notebook.interrupts.is_in_cell or not notebook.shell.autoawait:
        return lines
    line, body = lines[0][len("%%agent") :].strip(), "".join(lines[1:])
    return [f"await __import__('agent_widgets.magics', fromlist=['run_cell']).run_cell({line!r}, {body!r})\n"]


agent_cell.has_side_effects = True  # pyright: ignore[reportFunctionMemberAccess] - a terminal then waits for the second Enter


async def run_cell(line: str, body: str) -> Run:
    """What a ``%%agent`` cell does: start a run, and wait for it unless ``--no-wait``."""
    run, waits = _start_cell(line, body)
    if waits:
        await run
    return run


def _start_cell(line: str, body: str) -> tuple[Run, bool]:
    given = _parser().parse_args(shlex.split(line))
    on_confirm: OnConfirm | None = given.on_confirm
    agent = _agent_named(given.name, given.model)
    run = chat(agent, body.strip() or None, on_confirm=on_confirm)
    if run is None:
        raise UsageError("%%agent: the cell is empty, and there is nothing to go on with. Write a prompt below the first line.")
    return run, not given.no_wait


def _agent_named(name: str, model: str | None) -> object:
    held = _user_variable(name)
    if held is not None:
        if model is not None:
            raise UsageError(f"%%agent: {name} is an agent already, with a model of its own; leave out --model.")
        return held
    for session in sessions():
        if session.name == name:
            return session.agent
    return Agent(model, name=name)


def _user_variable(name: str) -> object | None:
    notebook = NotebookKernel.get()
    value = notebook.shell.user_ns.get(name) if notebook else None
    if isinstance(value, Session):
        return value.agent
    return value if isinstance(value, Backend) else None


@magics_class
class AgentMagics(Magics):
    """``%agent`` and ``%%agent``."""

    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> object:
        """Ask an agent (``%%agent``), or look after what runs (``%agent list``)."""
        if cell is not None:  # of a cell that cannot await, see agent_cell
            run, waits = _start_cell(line, cell)
            return run.wait() if waits else run
        words = shlex.split(line)
        verb, rest = (words[0], words[1:]) if words else ("list", [])
        actions: dict[str, Callable[[list[str]], object]] = {
            "list": self._list,
            "stop": self._stop,
            "approve": self._approve,
            "deny": self._deny,
            "resume": self._resume,
            "show": self._show,
            "save": self._save,
            "load": self._load,
        }
        if verb not in actions:
            raise UsageError(f"%agent {verb}: not a command.\n\n{_USAGE}")
        return actions[verb](rest)

    def _list(self, _rest: list[str]) -> None:
        for session in sessions():
            print(session)  # noqa: T201 - a line magic prints
            for rule in session.rules:
                print(f"    rule: {told(rule)}")  # noqa: T201
        if not sessions():
            print("No agent has run in this kernel yet.\n\n" + _USAGE)  # noqa: T201
        notebook = NotebookKernel.get()
        if notebook is not None and not notebook.is_terminal and notebook.tap.reason:
            print(f"Clicks may wait until the kernel is idle: {notebook.tap.reason}.")  # noqa: T201
        if notebook is not None and notebook.tap.unread:
            print(f"Some clicks may have waited for the kernel; {notebook.tap.unread}.")  # noqa: T201

    def _stop(self, rest: list[str]) -> None:
        for session in [_session_named(rest[0])] if rest else sessions():
            session.interrupt(reason="%agent stop")

    def _approve(self, rest: list[str]) -> None:
        _paused(rest[0] if rest else None).approve()

    def _deny(self, rest: list[str]) -> None:
        _paused(None).deny(reason=" ".join(rest))

    def _resume(self, rest: list[str]) -> Run | None:
        return chat(_session_named(rest[0] if rest else None).agent)

    def _show(self, rest: list[str]) -> None:
        session = _session_named(rest[0] if rest else None)
        views = [run.view() for run in session.runs]
        notebook = NotebookKernel.get()
        if notebook is None or notebook.is_terminal:
            print("\n\n".join(to_text(view) for view in views))  # noqa: T201
        else:
            ipython: Any = import_module("IPython.display")  # without types
            ipython.display(static_bundle(views, session=session.name), raw=True)

    def _save(self, rest: list[str]) -> None:
        _session_named(rest[1] if len(rest) > 1 else None).save(_file(rest))

    def _load(self, rest: list[str]) -> Session:
        return Session.load(_file(rest), _agent_named(rest[1] if len(rest) > 1 else DEFAULT_NAME, None))


def _file(rest: list[str]) -> str:
    if not rest:
        raise UsageError(f"%agent: name a file.\n\n{_USAGE}")
    return rest[0]


def _session_named(name: str | None) -> Session:
    found = [session for session in sessions() if name in (None, session.name)]
    if not found:
        raise InputError(
            f"There is no session called {name!r}. `%agent list` shows them." if name else "No agent has run in this kernel yet."
        )
    return found[-1]


def _paused(name: str | None) -> Run:
    for session in reversed(sessions()):
        if name in (None, session.name):
            for run in session.runs:
                if run.status == "paused":
                    return run
    raise InputError("Nothing waits for a decision.")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext agent_widgets``."""
    AgentWidgets.get()
    NotebookKernel.get()
    shell.register_magics(AgentMagics)
    transforms: list[Any] = shell.input_transformer_manager.cleanup_transforms
    if agent_cell not in transforms:
        transforms.append(agent_cell)  # before the line transforms, where cell magics live


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext agent_widgets``: the magics, the tap, the output proxies and the configuration go; runs and sessions stay."""
    transforms: list[Any] = shell.input_transformer_manager.cleanup_transforms
    if agent_cell in transforms:
        transforms.remove(agent_cell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    notebook = NotebookKernel.get()
    if notebook is not None:
        notebook.close()
    AgentWidgets.forget()
