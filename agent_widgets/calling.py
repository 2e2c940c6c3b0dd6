"""One call being executed: its result from the first event to the last, and what comes when nobody waits any more.

A result is begun before its tool is, and ended once. Whatever the tool gives after that is late: an event of its own, which the
model never reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from agent_widgets import events as ev
from agent_widgets import results
from agent_widgets.execution import Outlet, output_sink
from agent_widgets.messages import DataBlock, JsonObject, TextBlock, ToolCallBlock
from agent_widgets.outcomes import ToolOutcome
from agent_widgets.outputs import Outputs
from agent_widgets.threads import STILL_RUNNING


class Calling:
    """Executes one call."""

    def __init__(
        self,
        reply_id: str,
        call: ToolCallBlock,
        *,
        say: Callable[..., None],
        say_late: Callable[[ev.CustomEvent], None],
        ending: Callable[[], Iterable[ev.Event]],
        why: Callable[[], JsonObject | None],
        has_begun: bool,
    ) -> None:
        """Prepare a call.

        Args:
            reply_id: Whose call it is.
            call: Which, with the arguments to run it with.
            say: Remembers events, then emits them; on the loop.
            say_late: Takes a late result; on the loop, or in any thread if the loop has been closed.
            ending: Gives what ends its sub-agent when it is cut, and what that had said.
            why: Gives the facts of a stop of this call alone.
            has_begun: Its result has been begun: it goes on after a pause.
        """
        self._reply_id = reply_id
        self._call = call
        self._say = say
        self._say_late = say_late
        self._ending = ending
        self._why = why
        self._has_begun = has_begun
        self._in_a_line = self._is_over = False
        self._outputs = Outputs(self._show)

    async def carry(self, work: Callable[[Outlet], Awaitable[ToolOutcome | None]], give_way: Callable[[], None]) -> None:
        """Do the work and tell its result, unless it waits for a person (``None``). A stop says what is known, and goes on up.

        ``give_way`` raises a stop that no await has met yet.
        """
        self._begin()
        output_sink.set(self._outputs)
        try:
            give_way()
            outcome = await work(Outlet(emit=self._emit, late=self._tell_late))
        except asyncio.CancelledError as error:
            self._interrupt(still_running=STILL_RUNNING in error.args)
            raise
        if outcome is not None:
            self._end(outcome)

    def cut(self) -> None:
        """It does not run, and shall not: end its result, unless it has one."""
        self._interrupt(still_running=False)

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
            self._begin()
            self._say(*self._ending())
            self._close(results.interrupted(still_running=still_running, why=self._why()))

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._say(results.started(self._reply_id, self._call))

    def _end(self, outcome: ToolOutcome) -> None:
        if self._is_over:
            self._tell_late(outcome)
        else:
            self._close(outcome)

    def _close(self, outcome: ToolOutcome) -> None:
        """What comes after pieces begins on a line of its own."""
        self._outputs.close()
        self._is_over = True
        content = (TextBlock("\n"), *outcome.content) if self._in_a_line and outcome.content else outcome.content
        self._say(*results.given(self._reply_id, self._call.id, outcome.state, content, outcome.metadata))

    def _tell_late(self, outcome: ToolOutcome) -> None:
        self._say_late(results.late(self._call, outcome))

    def _show(self, output: JsonObject) -> None:
        self._say(ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": self._call.id, **output}))
