"""A page's side of one card, without a page: it knows what the kernel sent, and presses the card's buttons."""

from __future__ import annotations

import uuid
from typing import Any

from agent_widgets.wire import fingerprint
from tests.kernel.fakefront import Comm, Front, Message

SETUP = """
import asyncio, signal, time
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, say, wait
order = []

@aw.tool(confirm=True)
async def delete_rows(table: str) -> int:
    "Delete all rows of a table."
    return 3

async def the_cell_waits():
    "Until a cell that waits for its run has put in its handler of the interrupt: from then on the interrupt stops the run."
    while not getattr(signal.getsignal(signal.SIGINT), "__module__", "").startswith("agent_widgets."):
        await asyncio.sleep(0.001)

class InWaitingCell(ScriptedModel):
    "Speaks in a cell that waits."
    async def stream(self, request):
        await the_cell_waits()
        async for delta in super().stream(request):
            yield delta

def slow(*answers, model=ScriptedModel):
    "A model whose first answer takes 20 seconds."
    return model([[say(["word "] * 1000)], *([say(answer)] for answer in answers)], tokens_per_second=50)
"""

SOON = 0.4
"""Seconds from one press to what it does, on a machine that is busy with other tests: what would do it later takes longer.

How quick presses are is judged by the median of many (test_repetition), and by ``make test-kernels``.
"""

NOT_ABOUT_A_RUN = ("hello", "resync", "twin", "forget", "send")
"""What a page asks of the whole card."""

ENDED = ("completed", "interrupted", "exceed_max_iters", "error")


class Page:
    """What a page would know of the newest card."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._known = {comm.comm_id for comm in front.comms.values()}

    @property
    def card(self) -> Comm:
        """The card that appeared after this page was made."""
        return self._front.wait_for_comm(lambda comm: comm.comm_id not in self._known and "snapshot" in comm.state)

    @property
    def run_id(self) -> str:
        """The newest run of the card."""
        self._front.wait_until(lambda: bool(self.card.state["snapshot"].get("runs")))
        return self.card.state["snapshot"]["runs"][-1]["run_id"]

    def settle(self) -> dict[str, Any]:
        """Wait until the run has ended, and give its transcript."""
        self._front.wait_until(lambda: any(state in ENDED for state in self.states()[-1:]))
        return self.transcript()

    def transcript(self) -> dict[str, Any]:
        """The transcript as the kernel tells it to a page that has just come."""
        before = len(self._fulls())
        self.send("hello", have=-1, page="late")
        self._front.wait_until(lambda: len(self._fulls()) > before)
        return self._fulls()[-1]["runs"][-1]["transcript"]

    def _fulls(self) -> list[dict[str, Any]]:
        return [message for message in list(self.card.custom) if message["kind"] == "full"]

    def states(self) -> list[str]:
        """The states that the card has been told, in order."""
        return [m["status"]["state"] for m in list(self.card.custom) if m["kind"] == "events" and "status" in m]

    def texts(self) -> str:
        """The streamed text so far."""
        events = [event for m in list(self.card.custom) if m["kind"] == "events" for event in m["events"]]
        return "".join(event["delta"] for event in events if event["type"] == "TEXT_BLOCK_DELTA")

    def notices(self) -> list[str]:
        """The sentences for the person."""
        return [m["text"] for m in list(self.card.custom) if m["kind"] == "notice"]

    def wait_for_state(self, state: str, timeout: float = 10) -> Message:
        """The message that told this state."""
        comm_id = self.card.comm_id

        def tells(message: Message) -> bool:
            if message.type != "comm_msg" or message.content["comm_id"] != comm_id:
                return False
            content: dict[str, Any] = message.content["data"].get("content") or {}
            return content.get("status", {}).get("state") == state

        return self._front.wait_for(tells, timeout)

    def wait_for_text(self) -> None:
        """Until the model has said something."""
        self._front.wait_until(lambda: bool(self.texts()))

    def wait_for_messages(self, kind: str, count: int = 1) -> None:
        """Until the card was sent ``count`` messages of a kind."""
        self._front.wait_until(lambda: len([m for m in list(self.card.custom) if m["kind"] == kind]) >= count)

    def send(self, kind: str, *, subshell: str | None = None, command_id: str | None = None, **fields: Any) -> str:
        """Press a button. The id of the request is given back."""
        about = {} if kind in NOT_ABOUT_A_RUN else {"run_id": self.run_id}
        content = {"kind": kind, "id": command_id or uuid.uuid4().hex, **about, **fields}
        return self._front.custom(self.card.comm_id, content, subshell=subshell)

    def stop(self, *, subshell: str | None = None) -> str:
        """Press Stop."""
        return self.send("stop", subshell=subshell)

    def decide(self, decision: str, reason: str = "") -> str:
        """Press Approve or Deny on the first call that waits."""
        self.wait_for_state("paused")
        call = next(block for block in self.transcript()["message"]["content"] if block.get("state") == "asking")
        seen = fingerprint(call["name"], call["input"])
        return self.send("decide", call_id=call["id"], fingerprint=seen, decision=decision, reason=reason)
