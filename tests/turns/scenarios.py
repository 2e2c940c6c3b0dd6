"""The scenarios that are stopped at every turn of the loop: what the model says, which tools there are, what a person does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent_widgets.agent import Agent
from agent_widgets.compression import CompressionConfig
from agent_widgets.errors import ConversationTooLongError, ModelError
from agent_widgets.messages import Msg
from agent_widgets.models.scripted import Turn, call, fail, say, think
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import AgentState
from agent_widgets.tools import Tool, tool
from tests.fuzz.clock import VirtualLoop
from tests.turns.model import Cues


@dataclass
class World:
    """What the tools of one play did. A tool is told apart by its ``key``, which each call has to itself."""

    loop: VirtualLoop
    began: list[str] = field(default_factory=list[str])
    finished: dict[str, str] = field(default_factory=dict[str, str])
    cut: list[str] = field(default_factory=list[str])

    def end(self, key: str) -> str:
        """The tool is done: its result must be in the history."""
        self.finished[key] = f"<result of {key}>"
        return self.finished[key]

    def tools(self) -> list[Tool]:
        """Those that the scenarios use."""
        return [tool(made) if not isinstance(made, Tool) else made for made in _tools(self)]


def _tools(world: World) -> list[Callable[..., Any] | Tool]:
    async def quick(key: str) -> str:
        """Answer in the next turn."""
        world.began.append(key)
        await asyncio.sleep(0)
        return world.end(key)

    async def slow(key: str) -> str:
        """Answer after a second, and clean up in a turn when cut."""
        world.began.append(key)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            world.cut.append(key)
            await asyncio.sleep(0)  # noqa: ASYNC120 - a clean-up that awaits
            raise
        return world.end(key)

    async def failing(key: str) -> str:
        """Fail after a while."""
        world.began.append(key)
        await asyncio.sleep(0.5)
        raise ValueError(world.end(key))

    def sync(key: str) -> str:
        """Work in a thread for half a second."""
        world.began.append(key)
        world.loop.hold(0.1)  # less than a stopped thread is given
        return world.end(key)

    async def careful(key: str) -> str:
        """Answer in the next turn, if a person allows it."""
        world.began.append(key)
        await asyncio.sleep(0)
        return world.end(key)

    async def alone(key: str) -> str:
        """Answer after a while, with no other call beside it."""
        world.began.append(key)
        await asyncio.sleep(0.1)
        return world.end(key)

    async def streaming(key: str) -> AsyncIterator[str]:
        """Answer piece by piece, and clean up in a turn."""
        world.began.append(key)
        try:
            for number in range(3):
                yield f"<{number} of {key}>"
                await asyncio.sleep(0.1)
            yield f"<result of {key}>"
        finally:
            await asyncio.sleep(0)
        world.end(key)

    def stepping(key: str) -> Iterator[str]:
        """Answer piece by piece, in a thread."""
        world.began.append(key)
        for number in range(3):
            world.loop.hold(0.05)
            yield f"<{number} of {key}>"
        return world.end(key)

    def elsewhere(key: str) -> str:
        """Be done by somebody else."""
        raise NotImplementedError

    marked = (tool(confirm=True)(careful), tool(external=True)(elsewhere), tool(sequential=True)(alone))
    return [quick, slow, failing, sync, streaming, stepping, *marked]


def approve_one_by_one(run: Run) -> None:
    """A person who looks at one call after the other, the last one first."""
    run.approve([waits.id for waits in run.transcript.waiting if waits.state == "asking"][-1])


def answer_all(run: Run) -> None:
    """Whoever does it elsewhere is done."""
    for waits in run.transcript.waiting:
        run.answer(waits.id, "42")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One conversation. ``person`` acts at each pause; ``None`` leaves the run waiting."""

    script: Callable[[], list[Turn]]
    person: Callable[[Run], None] | None = None
    agent: Callable[[World, Cues], Agent] = lambda world, model: Agent(model, tools=world.tools())
    run: Callable[[Session], None] = lambda _: None
    """What happens in the session before the run that is stopped."""
    is_stored: bool = False
    """Whether the session is kept in a folder."""
    without: tuple[str, ...] = ()
    """Ways that mean something else here."""


def _family(world: World, model: Cues) -> Agent:
    """An agent with a sub-agent, which has one of its own."""
    tools = world.tools()
    deep = model.below("deep", [think("hm"), call("quick", {"key": "deepest"})], [say(["deep ", "is done"])])
    leaf = Agent(deep, name="leaf", tools=tools)
    calls = [call("leaf", {"task": "deep"}), call("slow", {"key": "dug"})]
    helper = Agent(
        model.below("dig", [say(["I dig. "]), *calls], [say(["dug ", "it"])]), name="helper", tools=[*tools, leaf.as_tool()]
    )
    return Agent(model, tools=[*tools, helper.as_tool()])


def _careful_family(world: World, model: Cues) -> Agent:
    """An agent with a sub-agent that is called twice side by side, and asks a person each time."""
    script: list[Turn] = [[say(["I ask. "]), call("careful", {"key": key})] for key in ("one", "two")]
    helper = Agent(model.below("ask", *script, [say(["so ", "be it"])], [say(["fi", "ne"])]), name="helper", tools=world.tools())
    return Agent(model, tools=[*world.tools(), helper.as_tool()])


def _two_tasks() -> list[Turn]:
    calls = [call("helper", {"task": "ask"}), call("quick", {"key": "a"}), call("helper", {"task": "ask"})]
    return [[say(["go on. "]), *calls], [say(["both ", "are back"])]]


def _busy(session: Session) -> None:
    """The session carries another run, so that the one that is stopped waits its turn."""
    session.run("before")


LONG = "I look, and tell about it at such length that the older steps are summarised as well. " * 3


def _with_a_past(world: World, model: Cues, compression: CompressionConfig) -> Agent:
    """An agent that is about to summarise what was said."""
    past = [Msg("them", f"{role} says something that is rather long " * 3, role) for role in ("user", "assistant") * 2]
    return Agent(model, tools=world.tools(), compression=compression, state=AgentState(context=tuple(past)))


SCENARIOS: dict[str, Scenario] = {
    "text": Scenario(script=lambda: [[say(["one ", "two ", "three ", "four ", "five"])]]),
    "thinking": Scenario(script=lambda: [[think(["hm ", "hm"]), say(["so ", "it is"])]]),
    "one call": Scenario(script=lambda: [[say(["I look. "]), call("slow", {"key": "a"})], [say(["found ", "it"])]]),
    "three parallel": Scenario(
        script=lambda: [
            [call("slow", {"key": "a"}), call("failing", {"key": "b"}), call("sync", {"key": "c"})],
            [say(["all ", "three"])],
        ]
    ),
    "sequential": Scenario(
        script=lambda: [
            [
                *(call("quick", {"key": "a"}), call("slow", {"key": "b"})),
                *(call("alone", {"key": "c"}), call("alone", {"key": "d"}), call("quick", {"key": "e"})),
            ],
            [say(["in ", "turn"])],
        ]
    ),
    "streaming tools": Scenario(
        script=lambda: [
            [call("streaming", {"key": "a"}), call("stepping", {"key": "b"}), call("quick", {"key": "c"})],
            [say(["all ", "of it"])],
        ]
    ),
    "half arguments": Scenario(
        script=lambda: [[say(["so "]), call("quick", '{"key": "a", "note": "a note that is never cut tools')], [say(["sorry"])]]
    ),
    "confirm among running calls": Scenario(
        script=lambda: [
            [
                call("careful", {"key": "a"}),
                call("slow", {"key": "b"}),
                call("careful", {"key": "c"}),
                call("quick", {"key": "d"}),
            ],
            [say(["done"])],
        ],
        person=approve_one_by_one,
    ),
    "waits for a person": Scenario(
        script=lambda: [[call("careful", {"key": "a"}), call("quick", {"key": "b"})], [say(["never said"])]]
    ),
    "external": Scenario(
        script=lambda: [[call("elsewhere", {"key": "x"}), call("quick", {"key": "a"})], [say(["thanks"])]], person=answer_all
    ),
    "sub-agent": Scenario(
        script=lambda: [
            [say(["help. "]), call("helper", {"task": "dig"}), call("quick", {"key": "a"})],
            [say(["thank ", "you"])],
        ],
        agent=_family,
    ),
    "sub-agent asks": Scenario(script=_two_tasks, agent=_careful_family, person=approve_one_by_one),
    "sub-agent waits for a person": Scenario(script=_two_tasks, agent=_careful_family),
    "retry back-off": Scenario(
        script=lambda: [
            [fail(ModelError("scripted", "too many requests", is_temporary=True))],
            [fail(ModelError("scripted", "too many requests", is_temporary=True))],
            [say(["at ", "last"])],
        ]
    ),
    "final step": Scenario(
        script=lambda: [[call("quick", {"key": "a"})], [call("quick", {"key": "b"})], [say(["never said"])]],
        agent=lambda world, model: Agent(model, tools=world.tools(), max_steps=2),
    ),
    "compression": Scenario(
        script=lambda: [
            [say([LONG]), call("quick", {"key": "a"})],
            [say([LONG]), call("slow", {"key": "b"})],
            [say(["found ", "it"])],
        ],
        agent=lambda world, model: _with_a_past(world, model, CompressionConfig(trigger_tokens=100)),
    ),
    "compression after a refusal": Scenario(
        script=lambda: [
            [call("quick", {"key": "a"})],
            [fail(ConversationTooLongError("scripted", "too long"))],
            [say(["found ", "it"])],
        ],
        agent=lambda world, model: _with_a_past(world, model, CompressionConfig()),
    ),
    "saving": Scenario(
        script=lambda: [[say(["I ask. "]), call("careful", {"key": "a"}), call("slow", {"key": "b"})], [say(["saved"])]],
        person=approve_one_by_one,
        is_stored=True,
    ),
    # agent.interrupt() is for the run that is busy, and a deadline counts from the start.
    "queued": Scenario(script=lambda: [[say(["my ", "turn"])]], run=_busy, without=("agent.interrupt", "deadline")),
}
