"""The lives of a story's agent: one until a crash, the next from what was saved. Each watches its runs and keeps the notes."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Inputs
from agent_widgets.messages import ToolCallBlock
from agent_widgets.models.scripted import Call, Item
from agent_widgets.runs import Listener, Run, current_run
from agent_widgets.sessions import Session
from agent_widgets.state import AgentState
from tests.fuzz.cast import TOOLS, StoryModel, on_stage
from tests.fuzz.checks import LogCheck, key_of

if TYPE_CHECKING:
    from tests.fuzz.stage import Stage

Maker = Callable[["Life", AgentState | None], Agent]
"""Makes the agent of a life; a test gives one that makes a broken agent."""


@dataclass(eq=False)
class Watch:
    """A run under observation."""

    run: Run
    check: LogCheck
    events: list[ev.Event] = field(default_factory=list[ev.Event])
    reasons: list[str] = field(default_factory=list[str])
    must_end: bool = False
    must_be_interrupted: bool = False
    may_be_interrupted: bool = False
    model_failed: bool = False

    @property
    def has_ended(self) -> bool:
        return any(isinstance(event, ev.ReplyEndEvent) for event in self.events)


class WatchedAgent(Agent):
    """An agent whose runs are watched from their beginning."""

    life: Life

    def _start(self, inputs: Inputs, listener: Listener | None = None) -> Run:
        run = super()._start(inputs, listener)
        self.life.watch(run, isinstance(inputs, ev.UserInterruptEvent))
        return run


def watched_agent(life: Life, state: AgentState | None) -> Agent:
    """The agent of a life."""
    return made_agent(WatchedAgent, life, state)


def made_agent(kind: type[WatchedAgent], life: Life, state: AgentState | None) -> Agent:
    """An agent of this class with the tools that its story asks for."""
    story = life.stage.story
    asked = {item.name for script in story.scripts for turn in script for item in turn if isinstance(item, Call)}
    tools = [made for name, made in TOOLS.items() if name in asked | {"quick"}]
    agent = kind(
        StoryModel(),
        tools=tools,
        state=state,
        max_steps=story.max_steps,
        on_interrupt="raise" if story.raises else "reply",
    )
    agent.life = life
    return agent


class Life:
    """What one agent does until a crash: the notes of its tools, and its runs."""

    def __init__(self, stage: Stage, state: AgentState | None = None) -> None:
        self.stage = stage
        self.story = stage.story
        self.loop = stage.loop
        self.is_alive = True
        self.watches: list[Watch] = []
        self.litter: list[asyncio.Task[None]] = []
        on_stage.set(self)
        stage.lives.append(self)
        self.context = contextvars.copy_context()
        self.agent = stage.maker(self, state)
        self.session = Session(self.agent, loop=self.loop) if self.story.way == "session" else None

    def watch(self, run: Run, may_be_interrupted: bool = False) -> None:
        may_be_interrupted |= self.story.deadline is not None
        watch = Watch(run, LogCheck(run.transcript), may_be_interrupted=may_be_interrupted)
        self.watches.append(watch)
        run.listen(lambda _, event: self._heard(watch, event))

    def _heard(self, watch: Watch, event: ev.Event | None) -> None:
        if event is not None:
            watch.check.read(event)
            watch.events.append(event)
            if isinstance(event, ev.UserConfirmResultEvent) and self.is_alive:
                self.stage.took_effect(event)
        self.stage.changed.set()
        if event is not None and self.is_alive:
            self.stage.count_event()

    def watch_of(self, run: Run | None) -> Watch | None:
        return next((watch for watch in self.watches if watch.run is run), None)

    def current(self) -> Watch | None:
        """The run that is busy or paused."""
        run = self.session.current if self.session else self.agent._run
        return None if run is None or run.is_over else self.watch_of(run)

    def late(self) -> Counter[str]:
        """How often the late result of each call was told, or is kept for the next reply."""
        told = [event for watch in self.watches for event in watch.events]
        kept = self.agent._memory._held.late
        return Counter(
            str(e.value["call_id"]) for e in (*told, *kept) if isinstance(e, ev.CustomEvent) and e.name == ev.LATE_RESULT
        )

    def left_behind(self) -> set[str]:
        """The ids of calls that were said to run on."""
        return {
            event.tool_call_id
            for watch in self.watches
            for event in watch.events
            if isinstance(event, ev.ToolResultEndEvent) and event.metadata.get("still_running")
        }

    # -- notes of the cast --------------------------------------------------------------------------------------

    def began(self, key: str, name: str, given: dict[str, Any]) -> None:
        if not self.is_alive:
            return
        self.stage.began(key, name, given)
        watch = self.watch_of(current_run())
        running = {} if watch is None else _open_results(watch.events)
        if len(running) > 1 and any(TOOLS[tool].sequential for tool in running.values() if tool in TOOLS):
            self.stage.fault("wrong outcome", f"a sequential call runs beside others: {running}")

    def ended(self, key: str, text: str) -> None:
        watch = self.watch_of(current_run())
        if self.is_alive and watch is not None and not self._is_answered(watch, key):
            self.stage.finished[key] = text

    def _is_answered(self, watch: Watch, key: str) -> bool:
        ids = {block.id for block in watch.run.reply.content if isinstance(block, ToolCallBlock) and key_of(block.input) == key}
        return any(isinstance(e, ev.ToolResultEndEvent) and e.tool_call_id in ids for e in watch.events)

    def noticed(self, key: str) -> None:
        self.stage.noticed.add(key)

    def stop_from_inside(self) -> None:
        if self.is_alive:
            self.stage.stop("now", "from inside", "agent")

    def model_failed(self) -> None:
        if (watch := self.watch_of(current_run())) is not None:
            watch.model_failed = True

    def refused(self, fault: str) -> None:
        self.stage.fault("invalid history", f"a server would refuse the request: {fault}")

    def next_turn(self, prompt: str) -> tuple[Item, ...]:
        return self.stage.next_turn(prompt)


def _open_results(events: Iterable[ev.Event]) -> dict[str, str]:
    """The tools whose results have been begun and not ended, by call."""
    found: dict[str, str] = {}
    for event in events:
        if isinstance(event, ev.ToolResultStartEvent):
            found[event.tool_call_id] = event.tool_call_name
        elif isinstance(event, ev.ToolResultEndEvent):
            found.pop(event.tool_call_id, None)
    return found
