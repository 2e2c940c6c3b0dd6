"""One call being executed: its result from the first event to the last, and what comes when nobody waits any more.

A result is begun before its tool is, and ended once. Whatever the tool gives after that is late: an event of its own, which the
model never reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent_widgets import events as ev
from agent_widgets import results
from agent_widgets.execution import Outlet, output_sink
from agent_widgets.messages import DataBlock, JsonObject, TextBlock, ToolCallBlock
from agent_widgets.outcomes import ToolOutcome, failed
from agent_widgets.threads import STILL_RUNNING
from agent_widgets.tools import Tool


class Calling:
    """Executes one call."""

    def __init__(
        self, reply_id: str, call: ToolCallBlock, *, say: Callable[..., None], say_late: Callable[[ev.CustomEvent], None]
    ) -> None:
        """Prepare a call.

        Args:
            reply_id: Whose call it is.
            call: Which, with the arguments to run it with.
            say: Remembers events, then emits them; on the loop.
            say_late: Takes a late result; on the loop, or in any thread if the loop has been closed.
        """
        self._reply_id = reply_id
        self._call = call
        self._say = say
        self._say_late = say_late
        self._loop = asyncio.get_running_loop()
        self._in_a_line = self._is_over = False

    async def carry(self, tool: Tool | None, known: str, give_way: Callable[[], None]) -> None:
        """Run ``tool`` and tell its result. A stop says what is known of it, and goes on up.

        ``known`` names the tools that there are; ``give_way`` raises a stop that no await has met yet.
        """
        self._say(results.started(self._reply_id, self._call))
        if tool is None:
            outcome = failed(f"There is no tool called {self._call.name!r}. There are: {known or 'none'}.")
        else:
            output_sink.set(self._print)
            try:
                give_way()
                outcome = await tool.execute(self._call.input, Outlet(emit=self._emit, late=self._tell_late))
            except asyncio.CancelledError as error:
                self._interrupt(still_running=STILL_RUNNING in error.args)
                raise
        self._end(outcome)

    def leave_behind(self) -> None:
        """Nobody waits for it any more: what it gives from now on is late."""
        self._interrupt(still_running=True)

    def _emit(self, piece: TextBlock | DataBlock | ev.Event) -> None:
        if self._is_over:
            return
        if isinstance(piece, TextBlock | DataBlock):
            self._in_a_line = isinstance(piece, TextBlock) and not piece.text.endswith("\n")
            piece = results.piece(self._reply_id, self._call.id, piece)
        self._say(piece)

    def _interrupt(self, *, still_running: bool) -> None:
        if not self._is_over:
            self._close(results.interrupted(still_running=still_running))

    def _end(self, outcome: ToolOutcome) -> None:
        if self._is_over:
            self._tell_late(outcome)
        else:
            self._close(outcome)

    def _close(self, outcome: ToolOutcome) -> None:
        """What comes after pieces begins on a line of its own."""
        self._is_over = True
        content = (TextBlock("\n"), *outcome.content) if self._in_a_line and outcome.content else outcome.content
        self._say(*results.given(self._reply_id, self._call.id, outcome.state, content, outcome.metadata))

    def _tell_late(self, outcome: ToolOutcome) -> None:
        self._say_late(results.late(self._call, outcome))

    def _print(self, name: str, value: JsonObject) -> None:
        """Takes what the tool prints, from any thread."""
        event = ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": self._call.id, "name": name, **value})
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._say, event)
