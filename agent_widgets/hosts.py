"""Where people see a card when no IPython runs the code: a cell of marimo, or a page whose app has placed the card itself.

Nothing here imports a host: one that is not running has not been imported either. What is private of marimo is looked for
first; what is missing costs that a waiting cell hears its card only when it has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import sys
from typing import Any, ClassVar

from agent_widgets.cells import CellWaiter
from agent_widgets.interrupts import Interrupts
from agent_widgets.kernel import NotebookKernel
from agent_widgets.runs import Run
from agent_widgets.tap import EarlyTap, Hear
from agent_widgets.waiting import Waitable, Waiter


class Page:
    """A page that somebody opens and clicks in: Panel, Solara, anything else that takes an ipywidget."""

    is_terminal = False
    shows_text = False
    anybody_there = True
    tap: EarlyTap | MarimoTap | None = None
    main_loop: asyncio.AbstractEventLoop | None = None

    def __init__(self) -> None:
        self.waiter: Waiter | None = None

    def watch(self, run: Run) -> None:
        """There is no kernel to be kept awake."""

    def nesting_note(self) -> str:
        """There is no kernel that could lose cells."""
        return ""


class MarimoCell(Page):
    """The cell of marimo that is running."""

    _interrupts: ClassVar[Interrupts] = Interrupts()
    _tap: ClassVar[MarimoTap | None] = None

    def __init__(self, marimo: Any) -> None:
        super().__init__()
        self._marimo = marimo
        self.tap = MarimoCell._tap = MarimoCell._tap or MarimoTap()
        self.waiter = MarimoWaiter(self._interrupts, self.tap)

    @classmethod
    def get(cls) -> MarimoCell | None:
        """The one that is running; ``None`` outside marimo, and where its notebook is run as a script."""
        marimo: Any = sys.modules.get("marimo")
        return cls(marimo) if marimo is not None and marimo.running_in_notebook() else None

    def show(self, card: object) -> None:
        """Put the card below what the cell has shown so far."""
        self._marimo.output.append(card)


class MarimoWaiter(CellWaiter):
    """Waiting in a cell of marimo. In edit mode its interrupt is a SIGINT, as ■ is."""

    pause = 0.04

    def __init__(self, interrupts: Interrupts, tap: MarimoTap) -> None:
        super().__init__(interrupts)
        self._marimo_tap = tap

    def _look(self, run: Waitable) -> None:  # noqa: ARG002 - CellWaiter's signature
        self._marimo_tap.look()


class MarimoTap:
    """Hears a card's commands while a cell waits; marimo itself reads them between two cells.

    marimo puts what a page sends on two queues: one that it works off, and one from which it merges what else has come. A
    command that is missing in the second is handled when its turn comes in the first, so reading the second swallows nothing.
    """

    def __init__(self) -> None:
        self._cards: dict[str, Hear] = {}

    def hear(self, comm_id: str, hear: Hear) -> None:
        """Tell ``hear`` of the custom messages of this card."""
        self._cards[comm_id] = hear

    def forget(self, comm_id: str) -> None:
        """Stop telling."""
        self._cards.pop(comm_id, None)

    def look(self) -> None:
        """Read what has come for the cell that runs here."""
        commands = _queue_of_this_cell()
        while commands is not None:
            try:
                command = commands.get_nowait()
            except (queue.Empty, asyncio.QueueEmpty):
                return
            if (hear := self._cards.get(str(getattr(command, "model_id", "")))) is not None:
                data: dict[str, Any] = command.into_comm_payload()["content"]["data"]
                if data.get("method") == "custom":
                    hear(data.get("content"))


def _queue_of_this_cell() -> Any:
    """The second queue of ``MarimoTap``; ``None`` where this marimo keeps it otherwise."""
    context: Any = sys.modules.get("marimo._runtime.context")
    try:
        enqueue = context.get_context()._kernel.enqueue_control_request  # noqa: SLF001 - there is no public way
        return inspect.getclosurevars(enqueue).nonlocals.get("set_ui_element_queue")
    except (AttributeError, TypeError):
        return None


Host = NotebookKernel | Page


def current_host() -> Host | None:
    """What runs the calling code; ``None`` in a plain script, where nothing can be shown."""
    return NotebookKernel.get() or MarimoCell.get()
