"""What 1,000 tokens (20 kB) cost between kernel and page: bytes and messages on iopub, and the kernel's CPU.

Our card beside the two usual ways (``display(Markdown).update`` and a widget trait, both with the full text for each token)
and beside a bare ``widget.send`` of the batches that our card had sent. Bytes are all frames that a client receives,
envelopes included.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]

COMMON = """
import asyncio, json, sys, threading, time

def text(target):
    made, number = "", 0
    while len(made) < target:
        number += 1
        made += (f"## Section {number}\\n\\nThe agent **looked** at item {number} and found `value_{number}` "
                 f"in a longer sentence, so that a paragraph has a realistic length.\\n\\n"
                 f"- first point\\n- second point\\n\\n```python\\nx = {number}\\n```\\n\\n")
    return made[:target]

TOKENS = [text(20_000)[at:at + 20] for at in range(0, 20_000, 20)]
assert len(TOKENS) == 1000

class measured:
    def __enter__(self):
        self.cpu = time.process_time()
    def __exit__(self, *_):
        with open(OUT, "w") as file:
            json.dump({"cpu": time.process_time() - self.cpu}, file)
"""

OURS_SETUP = """
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, say

class Paced:
    "1,000 tokens as one model piece each, at a rate or as fast as they are taken."
    name = "paced"
    def __init__(self, rate): self.rate = rate
    async def stream(self, request):
        from agent_widgets.backends import TextPiece
        begun = time.perf_counter()
        for number, token in enumerate(TOKENS):
            if self.rate:
                await asyncio.sleep(max(0, begun + number / self.rate - time.perf_counter()))
            elif number % 10 == 0:
                await asyncio.sleep(0)
            yield TextPiece(token)

from agent_widgets.loops import LoopThread
aw.chat(aw.Agent(ScriptedModel([[say("hi")]])), "The JavaScript goes to a page once; it is not counted here.").wait()
agent = aw.Agent(Paced({rate}))
async def drain():
    return "".join([piece.text async for piece in agent.model.stream(None)])
"""
NOTHING = """
with measured():
    future = asyncio.run_coroutine_threadsafe(drain(), LoopThread.get().loop)
    while not future.done(): time.sleep(0.05)
    time.sleep(0.2)
assert future.result() == "".join(TOKENS)
"""
OURS = """
with measured():
    run = aw.chat(agent, "go")
    run.wait()
    time.sleep(0.2)
assert run.text == "".join(TOKENS)
"""

BARE_SETUP = """
import anywidget, traitlets
from IPython.display import display
class Bare(anywidget.AnyWidget):
    _esm = "export default {{render() {{}}}}"
bare = Bare(); display(bare)
batches = json.loads({batches!r})
"""
BARE = """
begun = time.perf_counter()
with measured():
    for number, batch in enumerate(batches):
        time.sleep(max(0, begun + number * {seconds} / len(batches) - time.perf_counter()))
        bare.send(batch)
"""

PACE = """
def paced(rate):
    begun = time.perf_counter()
    for number, token in enumerate(TOKENS):
        if rate: time.sleep(max(0, begun + number / rate - time.perf_counter()))
        yield token
"""
MARKDOWN_SETUP = PACE + "\nfrom IPython.display import Markdown, display\nhandle = display(Markdown(''), display_id=True)"
MARKDOWN = "shown = ''\nwith measured():\n    for token in paced({rate}):\n        shown += token; handle.update(Markdown(shown))"
TRAIT_SETUP = PACE + "\nimport ipywidgets\nfrom IPython.display import display\nbox = ipywidgets.HTML(''); display(box)"
TRAIT = "shown = ''\nwith measured():\n    for token in paced({rate}):\n        shown += token; box.value = shown"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way of showing 1,000 tokens cost."""

    messages: int
    size: int
    cpu: float
    batches: list[Any]
    """The custom messages, for the bare ``widget.send`` of the same."""


def measure(setup: str, body: str) -> Cost:
    """Run ``body`` in a fresh kernel and count what its client receives."""
    out = Path(tempfile.mkdtemp(prefix="bench-")) / "out.json"
    manager = KernelManager()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    manager.start_kernel(env=env)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        _execute(client, f"OUT = {str(out)!r}\n{COMMON}\n{setup}")
        messages, size, batches = _execute(client, body)
        figures: Mapping[str, float] = json.loads(out.read_text())
        return Cost(messages, size, figures["cpu"], batches)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _execute(client: Any, code: str) -> tuple[int, int, list[Any]]:
    socket = client.iopub_channel.socket
    msg_id = client.execute(code)
    messages = size = 0
    batches: list[Any] = []
    deadline = time.monotonic() + 120
    idle = False
    while time.monotonic() < deadline:
        if not socket.poll(300 if idle else 1000):
            if idle:
                return messages, size, batches
            continue
        frames = socket.recv_multipart()
        _, parts = client.session.feed_identities(frames)
        message = client.session.deserialize(parts)
        kind, content = message["msg_type"], message["content"]
        if kind == "error":
            raise RuntimeError("\n".join(content["traceback"]))
        if kind == "status" and content["execution_state"] == "idle" and message["parent_header"].get("msg_id") == msg_id:
            idle = True
        if kind in ("status", "execute_input"):
            continue
        messages += 1
        size += sum(len(frame) for frame in frames)
        if kind == "comm_msg" and content["data"].get("method") == "custom":
            batches.append(content["data"]["content"])
    raise TimeoutError("the cell did not end")


def rows() -> list[tuple[str, Cost]]:
    """All rows, each in a kernel of its own."""
    made: list[tuple[str, Cost]] = []
    for name, rate in (("burst", 0), ("100 tokens/s", 100)):
        setup = OURS_SETUP.replace("{rate}", str(rate))
        ours = measure(setup, OURS)
        bare = BARE_SETUP.format(batches=json.dumps(ours.batches))
        made += [
            (f"{name}: agent-widgets, from the model to the page", ours),
            (f"{name}: the same model read by nobody", measure(setup, NOTHING)),
            (
                f"{name}: bare widget.send of the same {len(ours.batches)} batches at that pace",
                measure(bare, BARE.format(seconds=1000 / rate if rate else 0)),
            ),
            (f"{name}: display(Markdown).update, full text", measure(MARKDOWN_SETUP, MARKDOWN.format(rate=rate))),
            (f"{name}: ipywidgets.HTML.value, full text", measure(TRAIT_SETUP, TRAIT.format(rate=rate))),
        ]
    return made


def report() -> Iterator[str]:
    """The table, as lines."""
    yield f"{'1,000 tokens, 20 kB':<62}{'messages':>10}{'bytes':>13}{'CPU ms':>9}{'us/token':>10}"
    for name, cost in rows():
        yield f"{name:<62}{cost.messages:>10,}{cost.size:>13,}{cost.cpu * 1000:>9.0f}{cost.cpu * 1000:>10.0f}"
