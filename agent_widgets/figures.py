"""pyplot in tools: each tool has its own current figure, and what it leaves open is shown on its card.

pyplot keeps the open figures of the whole process in one dictionary (``Gcf.figs``). Without this, a figure that a tool has open
is shown by whichever cell ends next, a cell that plots draws into it, and ``plt.show()`` in a tool shows the figures of cells.
While this is installed, that dictionary is another one inside each call of a tool; cells see the one they had.
"""

from __future__ import annotations

import io
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from agent_widgets import outputs
from agent_widgets.execution import Sink, output_sink

logger = logging.getLogger(__name__)


class Figures:
    """Keeps the figures of tools apart, in one process."""

    def __init__(self, shell: Any, is_busy: Callable[[], bool]) -> None:
        """``is_busy``: whether a cell is executed that waits for no run."""
        self._shell = shell
        self._is_busy = is_busy
        self._apart: _FiguresByTool | None = None

    def keep_apart(self) -> None:
        """From now on, if matplotlib is there."""
        gcf: Any = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
        figures = getattr(gcf, "figs", None)
        if isinstance(figures, OrderedDict):
            self._apart = gcf.figs = _FiguresByTool(figures)  # pyright: ignore[reportUnknownArgumentType]
            formatter = self._shell.display_formatter.formatters["image/png"]
            formatter.for_type_by_name("matplotlib.figure", "Figure", _png_in_a_tool)  # the inline backend has one of its own

    def show_open(self, sink: Sink) -> None:
        """A tool has ended: show what it has left open, and forget it. In its thread.

        A tool that has imported pyplot itself owns all that was drawn since, unless a cell does something else meanwhile: then
        who has drawn it is not known, and the cell shows it.
        """
        first = self._apart is None
        self.keep_apart()
        if self._apart is None:
            return
        if first and not self._is_busy():
            self._apart.give_all_to(sink)
        for manager in self._apart.taken_from(sink):
            figure = manager.canvas.figure
            try:
                sink("display", {"data": outputs.shown({"image/png": _png(figure), "text/plain": repr(figure)})})
            except Exception:  # users' own figures are drawn here
                logger.exception("agent-widgets: a figure that was left open cannot be drawn")

    def uninstall(self) -> None:
        """Cells keep their figures; those of tools that run are theirs to close."""
        gcf: Any = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
        if gcf is not None and gcf.figs is self._apart and self._apart is not None:
            gcf.figs = self._apart.of_cells
            formatter = self._shell.display_formatter.formatters["image/png"]
            if formatter.deferred_printers.get(("matplotlib.figure", "Figure")) is _png_in_a_tool:
                del formatter.deferred_printers["matplotlib.figure", "Figure"]
        self._apart = None


class _FiguresByTool(MutableMapping[Any, Any]):
    """Looks like the dictionary of the tool that asks; like that of the cells anywhere else."""

    def __init__(self, of_cells: OrderedDict[Any, Any]) -> None:
        self.of_cells = of_cells
        self._of_tools: WeakKeyDictionary[Sink, OrderedDict[Any, Any]] = WeakKeyDictionary()

    def give_all_to(self, sink: Sink) -> None:
        self._of(sink).update(self.of_cells)
        self.of_cells.clear()

    def taken_from(self, sink: Sink) -> list[Any]:
        figures = self._of_tools.pop(sink, None)
        return [] if figures is None else list(figures.values())

    def _of(self, sink: Sink | None) -> OrderedDict[Any, Any]:
        return self.of_cells if sink is None else self._of_tools.setdefault(sink, OrderedDict())

    @property
    def _own(self) -> OrderedDict[Any, Any]:
        return self._of(output_sink.get())

    def __getitem__(self, number: Any) -> Any:
        return self._own[number]

    def __setitem__(self, number: Any, manager: Any) -> None:
        self._own[number] = manager

    def __delitem__(self, number: Any) -> None:
        del self._own[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def values(self) -> Any:
        return self._own.values()  # which can be reversed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)  # move_to_end, and what an OrderedDict has besides


def _png(figure: Any) -> bytes:
    """As the inline backend makes it."""
    made = io.BytesIO()
    figure.canvas.print_figure(made, format="png", dpi=figure.dpi, facecolor=figure.get_facecolor(), bbox_inches="tight")
    return made.getvalue()


def _png_in_a_tool(figure: Any) -> bytes | None:
    """So that ``display(figure)`` is a picture with any backend; a cell gets what it got before."""
    return None if output_sink.get() is None else _png(figure)
