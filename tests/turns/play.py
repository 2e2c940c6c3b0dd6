"""Plays a scenario once, stopped at one turn of the loop in one way, and says what the contract forbids about it.

The loop's time is a number (``tests.fuzz.clock``), so the same turn is the same moment each time.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.budgets import Budget
from agent_widgets.decisions import StopLevel, StopSource
from agent_widgets.journal import read_back
from agent_widgets.messages import Msg, TextBlock, ToolResultBlock
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import AgentState
from agent_widgets.store import Store
from agent_widgets.transcript import Transcript
from agent_widgets.wire import load_state
from tests.fuzz.checks import LogCheck, results_by_key
from tests.fuzz.clock import Hang, VirtualLoop, threads_in_step
from tests.turns.model import ALL_IS_WELL, Cues
from tests.turns.scenarios import Scenario, World

DEADLINE = 1_000_000.0
"""Virtual seconds: nobody but the way "deadline" comes so far."""


SECONDS = 0.25
"""Virtual seconds from a stop to the end: a thread is given 0.2 to notice, and no tool here takes long to clean up."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of stopping, at the turn ``at``.

    Attributes:
        act: Done at that turn.
        again: Done one turn later.
        limits: What the run is given from its start, and is stopped by; ``at`` is then no turn but a limit.
        first: The first turn at which it can take effect: before it, there is nobody to stop or to be cancelled.
        turns: How many turns of the loop it may take from ``act`` until the run knows of it.
    """

    act: Callable[[Play], None] = lambda _: None
    again: Callable[[Play], None] | None = None
    limits: Callable[[int], Budget] | None = None
    level: StopLevel = "now"
    source: StopSource = "code"
    is_foreign: bool = False
    first: int = 1
    turns: int = 1


def _from_a_thread(play: Play) -> None:
    thread = threading.Thread(target=lambda: play.run.stop(source="user", reason="enough"))
    thread.start()
    thread.join()


def _let_time_pass(play: Play) -> None:
    play.loop.now += 2 * DEADLINE


def _cancel_the_caller(play: Play) -> None:
    play.cancel_was_accepted = play.caller.cancel()


WAYS: dict[str, Way] = {
    "now": Way(act=lambda play: play.run.stop(reason="enough")),
    "now, by a person, from a thread": Way(act=_from_a_thread, source="user"),
    "now, by ■": Way(act=lambda play: play.run.stop(source="kernel"), source="kernel"),
    "twice": Way(act=lambda play: play.run.stop(), again=lambda play: play.run.stop(reason="too late to count")),
    "agent.interrupt": Way(act=lambda play: play.agent.interrupt(reason="enough")),
    "after the step": Way(act=lambda play: play.run.stop("step", source="user"), level="step", source="user"),
    "after the step, then now": Way(
        act=lambda play: play.run.stop("step"), again=lambda play: play.run.stop("now", source="user"), source="user", turns=2
    ),
    "deadline": Way(act=_let_time_pass, source="deadline", first=2),
    "somebody else's cancel": Way(act=_cancel_the_caller, is_foreign=True, first=2, turns=2),
    "budget of steps": Way(limits=lambda at: Budget(steps=at), source="budget"),
    "budget of tool calls": Way(limits=lambda at: Budget(tool_calls=at), source="budget"),
    "budget of tokens": Way(limits=lambda at: Budget(tokens=5 * at), source="budget"),
}


@dataclass
class Play:
    """One play and what is known of it."""

    scenario: Scenario
    way: Way | None
    at: int
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    cancel_was_accepted: bool = False
    stopped_at: int = 0
    ended_at: int = 0
    seconds: float = 0.0
    turns: int = 0
    said: str = ""
    said_below: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    unread: list[str] = field(default_factory=list[str])
    folder: Path | None = None

    run: Run = field(init=False)
    agent: Agent = field(init=False)
    caller: asyncio.Task[object] = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.loop)
        self.model = Cues(self.scenario.script())
        self.resumed: Run | None = None
        self.after: Run | None = None
        self.is_deaf = False
        self.left: list[str] = []
        self.hang = ""
        self.open_streams = 0

    # -- carrying -----------------------------------------------------------------------------------------------

    def carry(self) -> Play:
        """From the first prompt to the one after the stop."""
        self.loop.on_turn = self._turn
        self.loop.on_idle = self._idle
        try:
            with threads_in_step():
                self.loop.run_until_complete(self._story())
        except Hang as error:
            self.hang = str(error)
        finally:
            self.loop.let_go()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
        return self

    async def _story(self) -> None:
        self.agent = self.scenario.agent(self.world, self.model)
        session = Session(self.agent, loop=self.loop)
        if self.scenario.is_stored:
            self.folder = Path(tempfile.mkdtemp())
            Session.open(self.folder / "kept", self.agent)
        try:
            self.scenario.run(session)
            self.run = self._start(session, "go")
            self.check = LogCheck(self.run.transcript)
            self.run.listen(self._hear)
            self._first_turn = self.loop.turn
            self.caller = asyncio.create_task(_result(self.run))
            await asyncio.wait([self.caller])
            self.turns = self.ended_at - self._first_turn
            self._first_turn = -1_000_000  # no more stops
            await asyncio.sleep(5)  # whoever swallows a cancel is given his time
            self.open_streams = self.model.all_open
            self.left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            self.run.stop(reason="of a run that is over")
            self.agent.interrupt(reason="of an idle agent")
            assert self.way is not None or self.run.status != "interrupted"
            if (
                self.way is not None
                and self.run.status == "interrupted"
                and not self.way.limits
                and (self.at % 2 or self.way.level == "step")
            ):
                self.resumed = self.run.resume()
                await asyncio.wait([asyncio.create_task(_result(self.resumed))])
            self.after = self._start(session, "next")
            await asyncio.wait([asyncio.create_task(_result(self.after))])
        finally:
            session.close()
            if self.folder is not None:
                if self._on_disk("kept") != self.agent.state:
                    self.unread.append("C23 the disk does not hold what the agent remembers")
                shutil.rmtree(self.folder)

    def _on_disk(self, name: str) -> AgentState:
        """What a new kernel would go on from."""
        assert self.folder is not None
        store = Store(self.folder / name)
        try:
            found = read_back(store)
        finally:
            store.close()
        assert found is not None
        return load_state(found[1])

    def _start(self, session: Session, prompt: str) -> Run:
        way = self.way if prompt == "go" else None
        return session.run(
            prompt,
            on_pause=self.scenario.person,
            deadline=DEADLINE if way is WAYS["deadline"] else None,
            budget=way.limits(self.at) if way and way.limits else None,
        )

    def _turn(self, turn: int) -> bool:
        if self.way is None or self.way.limits or not hasattr(self, "caller"):
            return False
        if turn - self._first_turn == self.at and not self.stopped_at:
            self._stop()
            return True
        if self.stopped_at and turn == self.stopped_at + 1 and self.way.again is not None:
            self.way.again(self)
            return True
        if self.stopped_at and turn == self.stopped_at + self.way.turns:
            self.is_deaf = self.run.status in ("queued", "running", "paused")
        return False

    def _idle(self) -> bool:
        """A pause that nobody ends: the stop comes now; without one, or after it, who waits for a person is told no."""
        waits = next((run for run in (self.resumed, self.run) if run is not None and run.status == "paused"), None)
        if self.way is not None and not self.way.limits and not self.stopped_at:
            self._stop()
        elif waits is not None:
            waits.deny(reason="nobody is here")
        else:
            return False
        return True

    def _stop(self) -> None:
        assert self.way is not None
        self.stopped_at = self.loop.turn
        if self.folder is not None:  # the kernel might as well die here
            shutil.copytree(self.folder / "kept", self.folder / "copied")
            self.unread += (f"C23 {fault}" for fault in self._on_disk("copied").check())
        self.way.act(self)
        self.seconds = self.loop.now

    def _hear(self, _: Run, event: ev.Event | None) -> None:
        if event is None:
            return
        self.check.read(event)
        if isinstance(event, ev.TextBlockDeltaEvent):
            path = ev.agent_path(event)
            self.said_below[path] = self.said_below.get(path, "") + event.delta
            self.said += "" if path else event.delta
        if isinstance(event, ev.ReplyEndEvent) and not ev.agent_path(event):
            self.ended_at = self.loop.turn
            self.seconds = self.loop.now - self.seconds
        loaded = load_state(json.loads(json.dumps(self.agent.dump())))  # C22: whoever saves now can go on
        if loaded != self.agent.state:
            self.unread.append(f"C22 {event.type}: the state is not what was saved")
        self.unread += (f"C22 {event.type}: {fault}" for fault in loaded.repair().check())

    # -- judging ------------------------------------------------------------------------------------------------

    def faults(self, whole: Play) -> Iterator[str]:
        """What the contract forbids, each with its number. ``whole`` is the play that nobody stopped."""
        if self.hang:
            yield f"it waits for ever: {self.hang}"
            return
        yield from self._of_the_end()
        yield from self._of_the_history()
        yield from self._of_the_tools()
        yield from self._of_going_on(whole)
        yield from self._of_what_is_left()

    def _of_the_end(self) -> Iterator[str]:
        run, way = self.run, self.way
        began = any(isinstance(event, ev.ReplyStartEvent) for event in run.events)
        for fault in self.check.end(paused=False, waiting=set()):
            yield f"C1 {fault}"
        end = run.events[-1]
        if not isinstance(end, ev.ReplyEndEvent) or end.finished_reason != run.status:
            yield f"C1 a run that is {run.status} ended with {end}"
            return
        if way is None:
            return
        if way.limits is not None:
            if run.status == "interrupted" and end.metadata.get("source") != "budget":
                yield f"C12 a budget has stopped it, and REPLY_END says {end.metadata}"
            return
        was_late = self.ended_at < self.stopped_at + way.turns
        if self.is_deaf:
            yield f"C8 {way.turns} turns after the stop nobody has heard of it"
        if run.status != "interrupted" and way.level == "now" and not was_late:
            yield f"C7 stopped in turn {self.stopped_at}, and it went on to {run.status} in turn {self.ended_at}"
        if way.level == "now" and not was_late and self.seconds > SECONDS:
            yield f"C8 {self.seconds:g} s from the stop to the end"
        if run.status == "interrupted":
            asked = {"source": way.source, "when": way.level}
            if {key: end.metadata.get(key) for key in asked} != asked and not was_late:
                yield f"C12 asked was {asked}, REPLY_END says {end.metadata}"
            if not isinstance(end.metadata.get("stop_ms"), float) or not isinstance(end.metadata.get("reason"), str):
                yield f"C12 no time or no reason: {end.metadata}"
        if began and (usage := run.reply.usage) and run.status == "interrupted":
            cut = [e for e in run.events if isinstance(e, ev.ModelCallEndEvent) and e.finished_reason == "interrupted"]
            if cut and not usage.unknown_calls:
                yield f"C13 a cut call without usage counts as {usage}"
        if way.is_foreign and self.cancel_was_accepted != self.caller.cancelled():
            yield f"C11 the caller's cancel was {'lost' if self.cancel_was_accepted else 'invented'}"
        if not way.is_foreign and (self.caller.cancelled() or self.caller.exception()):
            yield f"C11 the caller got {self.caller!r}"

    def _of_the_history(self) -> Iterator[str]:
        state = self.agent.state
        yield from (f"C2 {fault}" for fault in state.check())
        yield from (f"C2 the server refuses: {fault}" for fault in self.model.refused)
        yield from self.unread
        after = self.after
        if after is None or after.status != "completed" or after.text != ALL_IS_WELL:
            yield f"C2 the next prompt: {after!r}"
        reply = next((message for message in state.context if message.id == self.run.reply.id), None)
        text = "".join(block.text for block in reply.content if isinstance(block, TextBlock)) if reply else ""
        if text != self.said:
            yield f"C3 said {self.said!r}, kept {text!r}"
        for path, result, message in replies_below(self.run.transcript):
            if message.text.replace("\n", "") != self.said_below.get(path, ""):
                yield f"C3 the sub-agent {path} said {self.said_below.get(path)!r}, kept {message.text!r}"
            if result is None or (result.state == "interrupted" and message.text not in result.text()):
                yield f"C3 the sub-agent {path} said {message.text!r}, and the result of its call is {result}"
            if result and self.run.status != "interrupted" and result.state != "success" and "nobody" not in str(self.run.events):
                yield f"C10 nobody stopped the sub-agent {path}, and the result of its call is {result}"
        if reply is not None and self.run.status == "interrupted" and not reply.metadata.get("_is_interrupted"):
            yield "C3 the kept reply is not marked as interrupted"

    def _of_the_tools(self) -> Iterator[str]:
        world = self.world
        if len(set(world.began)) != len(world.began):
            yield f"C3 executed twice: {world.began}"
        below = [message for run in (self.run, self.resumed) if run for _, _, message in replies_below(run.transcript)]
        kept = results_by_key([*self.agent.state.context, *below])
        for key, text in world.finished.items():
            call, result = kept.get(key, (None, None))
            if call is None or result is None or text not in result.text() or result.state not in ("success", "error"):
                yield f"C3 {key} has finished with {text!r}, and the history has {result}"
        for key, (_, result) in kept.items():
            if result.state == "success" and key not in world.finished and result.name != "elsewhere":
                yield f"C3 {key} is a success that never was"
        if self.way is not None and self.way.level == "step" and world.cut:
            yield f"C6 the step was cut: {world.cut}"

    def _of_going_on(self, whole: Play) -> Iterator[str]:
        """Without a new message the conversation goes on; after "step" it is then what it would have been."""
        resumed = self.resumed
        if resumed is None:
            return
        if resumed.status not in ("completed", "exceed_max_iters"):
            yield f"C6 resumed: {resumed!r} {resumed.error!r}"
        cut = any(isinstance(b, ToolResultBlock) and b.state == "interrupted" for b in self.run.reply.content)  # it waited
        if self.way is not None and self.way.level == "step" and whole.run.status == "completed" and not cut:
            if sorted(self.world.finished) != sorted(whole.world.finished):
                yield f"C6 {sorted(self.world.finished)} have run, and without the stop {sorted(whole.world.finished)}"
            said = self.said + "".join(block.text for block in resumed.reply.content if isinstance(block, TextBlock))
            if said != whole.said:
                yield f"C6 it said {said!r}, and without the stop {whole.said!r}"

    def _of_what_is_left(self) -> Iterator[str]:
        if self.left:
            yield f"C14 tasks are left: {self.left}"
        if self.loop.threads:
            yield f"C9 {self.loop.threads} threads are left"
        if self.open_streams:
            yield f"C6 {self.open_streams} streams of the model are open"


def replies_below(
    transcript: Transcript, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ToolResultBlock | None, Msg]]:
    """The replies of all sub-agents, each with its path and the result that it made."""
    results = {block.id: block for block in transcript.message.content if isinstance(block, ToolResultBlock)}
    for child in transcript.children:
        below = (*path, child.call_id)
        yield below, results.get(child.call_id), child.transcript.message
        yield from replies_below(child.transcript, below)


async def _result(run: Run) -> object:
    return await run
