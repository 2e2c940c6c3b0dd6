"""A notebook in one thread: a shell with a kernel and comms as JupyterLite's Python kernel has them, and a page that clicks.

Runs in Pyodide, with the real ``pyodide_kernel``, and in CPython, with the fake one of ``one_thread``.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

JsonDict = dict[str, Any]

SETUP = """
import asyncio
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, fail, say, wait

@aw.tool(confirm=True)
async def delete_rows(table: str) -> str:
    "Delete all rows of TABLE."
    return f"deleted {table}"

def slow(*answers):
    "A model whose first answer takes 20 seconds."
    return ScriptedModel([[say(["word "] * 1000)], *([say(answer)] for answer in answers)], tokens_per_second=50)
"""


class Host:
    """Runs cells, keeps what is sent to the page, and sends what the page clicks, as JupyterLite does."""

    def __init__(self, shell: Any, comm_manager: Any) -> None:
        self.shell = shell
        self._comms = comm_manager
        self._arrived = asyncio.Event()
        self.cards: list[str] = []
        self.sent: list[tuple[str, JsonDict]] = []
        self.displayed: list[JsonDict] = []
        shell._showtraceback = _ignore  # it is raised
        shell.send_comm = self._send_comm
        shell.display_pub.display_data_callback = shell.display_pub.update_display_data_callback = self._display

    # -- cells --------------------------------------------------------------------------------------------------

    async def cell(self, code: str) -> Any:
        """Run a cell; gives the value of its last line.

        Raises:
            Exception: what the cell raises.
        """
        return await self.start(code)

    def start(self, code: str) -> asyncio.Task[Any]:
        """Run a cell meanwhile: a task of its own, as the handling of each request is."""
        return asyncio.create_task(self._cell(code))

    async def _cell(self, code: str) -> Any:
        result = await self.shell.run_cell_async(code, transformed_cell=self.shell.transform_cell(code), store_history=True)
        result.raise_error()
        return result.result

    def value(self, expression: str) -> Any:
        """A value in the notebook, between two cells."""
        return eval(expression, self.shell.user_ns)

    # -- the page -----------------------------------------------------------------------------------------------

    def messages(self, kind: str, card: int = -1) -> list[JsonDict]:
        """What a card was sent of this kind."""
        return [message for comm_id, message in self.sent if comm_id == self.cards[card] and message["kind"] == kind]

    def states(self, card: int = -1) -> list[str]:
        """The states that a card was told."""
        return [message["status"]["state"] for message in self.messages("events", card) if "status" in message]

    def text(self, card: int = -1) -> str:
        """The text that was streamed to a card."""
        events = [event for message in self.messages("events", card) for event in message["events"]]
        return "".join(event["delta"] for event in events if event["type"] == "TEXT_BLOCK_DELTA")

    async def until(self, true: Callable[[], object], seconds: float = 20) -> None:
        """Until it is so, looked at whenever something was sent."""
        async with asyncio.timeout(seconds):
            while not true():
                self._arrived.clear()
                await self._arrived.wait()

    async def until_state(self, state: str, card: int = -1) -> None:
        """Until a card was told this state last."""
        await self.until(lambda: self.cards and self.states(card)[-1:] == [state])

    def click(self, kind: str, *, card: int = -1, **fields: Any) -> None:
        """Press a button: an ordinary comm message, as the kernel hands it on."""
        runs = self.messages("events", card)
        content = {"kind": kind, "id": uuid.uuid4().hex, "run_id": runs[-1]["run_id"] if runs else "", **fields}
        data = {"method": "custom", "content": content}
        message: JsonDict = {"content": {"comm_id": self.cards[card], "data": data}, "metadata": {}, "buffers": []}
        self._comms.comm_msg(None, None, message)

    async def decide(self, decision: str, reason: str = "") -> None:
        """Approve or deny the first call that waits."""
        await self.until_state("paused")
        self.click("hello", have=-1, page="late")
        await self.until(lambda: self.messages("full"))
        blocks = self.messages("full")[-1]["runs"][-1]["transcript"]["message"]["content"]
        waiting = next(block for block in blocks if block.get("state") == "asking")
        from agent_widgets.wire import fingerprint

        seen = fingerprint(waiting["name"], waiting["input"])
        self.click("decide", call_id=waiting["id"], fingerprint=seen, decision=decision, reason=reason)

    def _display(self, data: JsonDict, _metadata: Any, _transient: Any) -> None:
        self.displayed.append(data)
        self._arrived.set()

    def _send_comm(self, msg_type: str, content: JsonDict, _metadata: Any, _topic: Any, _buffers: Any) -> None:
        json.dumps(content)  # what cannot be sent must fail here
        if msg_type == "comm_open" and "composer" in content["data"].get("state", {}):
            self.cards.append(content["comm_id"])
        elif msg_type == "comm_msg" and content["data"].get("method") == "custom":
            self.sent.append((content["comm_id"], content["data"]["content"]))
        self._arrived.set()


def _ignore(*_: object) -> None:
    pass
