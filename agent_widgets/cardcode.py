"""What all cards of a kernel share: their code, which a page gets once; and how many of them stay live."""

# ipywidgets has no types: what comes from it is unknown to pyright.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Protocol

import ipywidgets
import traitlets

from agent_widgets.errors import AgentWidgetsError

STATIC = Path(__file__).parent / "static"

LIVE_CARDS = 50
"""Of the cards whose runs have ended, so many stay live; in the place of an older one its static twin is shown."""


class Card(Protocol):
    """What is asked of a card here."""

    def let_go(self) -> None:
        """Close it if nothing goes on in it; from any thread."""


class CardCode(ipywidgets.Widget):
    """What all cards of a kernel share: the JavaScript, which a page gets once, and a layout; and which of them may go."""

    _model_name = traitlets.Unicode("WidgetModel").tag(sync=True)
    _model_module = traitlets.Unicode("@jupyter-widgets/base").tag(sync=True)
    code = traitlets.Unicode().tag(sync=True)

    _one: ClassVar[CardCode | None] = None

    def __init__(self) -> None:
        super().__init__(code=static_file("card.js"))
        self.layout = ipywidgets.Layout()
        self._ended: OrderedDict[Card, None] = OrderedDict()
        self._lock = threading.Lock()

    def has_ended(self, card: Card) -> None:
        """Nothing goes on in this card; of such the newest are kept live."""
        with self._lock:
            self._ended[card] = None
            self._ended.move_to_end(card)
            oldest = self._ended.popitem(last=False)[0] if len(self._ended) > LIVE_CARDS else None
        if oldest is not None:
            oldest.let_go()

    def goes_on(self, card: Card) -> None:
        """Something goes on in this card, or it is closed."""
        with self._lock:
            self._ended.pop(card, None)

    @classmethod
    def get(cls) -> CardCode:
        """The one of this kernel; made again when its comm was closed."""
        if cls._one is None or cls._one.comm is None:
            cls._one = cls()
        return cls._one


@lru_cache(maxsize=4)
def static_file(name: str) -> str:
    """A built file of the page's side.

    Raises:
        AgentWidgetsError: It was not built.
    """
    path = STATIC / name
    if not path.exists():
        raise AgentWidgetsError(
            f"The card's JavaScript ({path.name}) was not built. In a source checkout run `make bundle`; "
            "an installed wheel brings it, so reinstall agent-widgets."
        )
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def code_key() -> str:
    """The name under which a page keeps the code: another one for each version of it."""
    return "agent-widgets@" + hashlib.sha256(static_file("card.js").encode()).hexdigest()[:16]
