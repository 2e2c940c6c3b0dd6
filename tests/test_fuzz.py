"""The interruption contract under chance: seeded stories, a state machine, and proof that the checks can fail."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from pydantic import TypeAdapter

from agent_widgets import carriage, reasoning
from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Emit, Inputs
from agent_widgets.decisions import Decision, StopLevel
from agent_widgets.execution import Outlet
from agent_widgets.models.scripted import Item, ScriptedModel, call, fail, say
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import AgentState
from agent_widgets.transcript import Transcript, TranscriptBuilder
from agent_widgets.wire import dump_event, fingerprint, load_event
from tests.fuzz.checks import Kind
from tests.fuzz.clock import threads_in_step
from tests.fuzz.lives import Life, Maker, WatchedAgent, made_agent
from tests.fuzz.stage import Stage, play, shrunk
from tests.fuzz.stories import REASONS, Act, Choice, Story, story_of

CHUNK = 40
TRANSCRIPT = TypeAdapter(Transcript)


@pytest.mark.parametrize("first", range(0, 240, CHUNK))
def test_random_stories_keep_the_contract(first: int) -> None:
    for seed in range(first, first + CHUNK):
        faults = play(story_of(seed))
        assert not faults, f"python -m tests.fuzz 1 {seed}\n" + "\n".join(map(str, faults))


def test_a_seed_tells_the_same_story_and_it_plays_the_same_way() -> None:
    def told(seed: int) -> list[tuple[str, ...]]:
        stage = Stage(story_of(seed))
        with threads_in_step():
            stage.carry(stage.play())
        stage.close()
        return [tuple(event.type for event in watch.events) for watch in stage.life.watches]

    for seed in range(15):
        assert repr(story_of(seed)) == repr(story_of(seed))
        assert told(seed) == told(seed), seed


# -- the checks can fail ------------------------------------------------------------------------------------------------


def nothing_closed(*_: object, **__: object) -> Iterable[ev.Event]:
    return ()


class Forgetful(WatchedAgent):
    """Drops the text of every result, and says that it was a success."""

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        apply = self._memory.apply
        self._memory.apply = lambda event: None if isinstance(event, ev.ToolResultTextDeltaEvent) else apply(event)
        await super().run(inputs, emit)


class Deaf(WatchedAgent):
    """Has a stop button that does nothing."""

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        carried = asyncio.ensure_future(super().run(inputs, emit))
        while not carried.done():
            try:
                await asyncio.shield(carried)
            except asyncio.CancelledError:  # noqa: ASYNC103 - the planted bug
                continue  # noqa: ASYNC104


class Careless(WatchedAgent):
    """Runs what must be asked about without asking."""

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        self.tools = {name: replace(made, confirm=False) for name, made in self.tools.items()}
        await super().run(inputs, emit)


NOBODY = Outlet(emit=lambda _: None, late=lambda _: None)


class Stutterer(WatchedAgent):
    """Carries out every approval twice."""

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        if isinstance(inputs, ev.UserConfirmResultEvent):
            for result in inputs.confirm_results:
                await self.tools[result.tool_call.name].execute(result.tool_call.input, NOBODY)
        await super().run(inputs, emit)


class Litterer(WatchedAgent):
    """Leaves a task behind."""

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        self.life.litter.append(asyncio.create_task(asyncio.sleep(1000)))
        await super().run(inputs, emit)


def maker(kind: type[WatchedAgent]) -> Maker:
    return lambda life, state: made_agent(kind, life, state)


SLOW = call("slow", {"key": "k1", "seconds": 0.5}, "c1")
ASK = call("ask_quick", {"key": "k2", "seconds": 0.0}, "c2")
TALE = Story(
    way="reply",
    scripts=(((say(["I look. "]), SLOW, ASK), (say(["Done."]),)), ((say(["Second."]),),)),
    choices=(Choice("approve"),),
)
CUT = replace(
    TALE,
    scripts=(((SLOW,), *TALE.scripts[0][1:]), TALE.scripts[1]),
    acts=(Act(at=0.1, by="second", deed="now", reason="enough"),),
)
FAULTS: dict[str, tuple[type[WatchedAgent], Story, Kind]] = {
    "a dropped result": (Forgetful, TALE, "result lost"),
    "a stop that does nothing": (Deaf, CUT, "wrong outcome"),
    "a question that is not asked": (Careless, TALE, "executed without leave"),
    "an approval carried out twice": (Stutterer, TALE, "executed twice"),
    "a task that is left behind": (Litterer, TALE, "leftover"),
}


def test_the_stories_of_the_planted_faults_are_fine_without_them() -> None:
    assert play(TALE) == play(CUT) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_reported(name: str) -> None:
    kind, story, says = FAULTS[name]
    assert says in {fault.kind for fault in play(story, maker(kind))}


def test_blocks_that_nobody_closes_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "closing", nothing_closed)
    monkeypatch.setattr(carriage, "closing", nothing_closed)
    kinds = {fault.kind for fault in play(CUT)}
    assert {"broken log", "wrong outcome"} <= kinds
    assert any(play(story_of(seed)) for seed in range(10))


def test_a_history_without_its_results_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_end(*args: Any, **options: Any) -> Iterable[ev.Event]:
        return [event for event in real(*args, **options) if isinstance(event, ev.ReplyEndEvent)]

    real = reasoning.closing
    monkeypatch.setattr(reasoning, "closing", only_the_end)
    in_mid_call = replace(TALE, acts=(Act(at=7, by="event", deed="now"),))
    assert "invalid history" in {fault.kind for fault in play(in_mid_call)}


def test_a_story_that_went_wrong_is_shrunk_to_what_matters() -> None:
    padded = replace(
        TALE,
        scripts=((*TALE.scripts[0], (say(["More."]), SLOW)), *TALE.scripts[1:]),
        acts=(Act(at=900, by="turn", deed="step"),),
        choices=(*TALE.choices, Choice("deny", "no")),
        resumes=2,
    )
    small = shrunk(padded, "executed without leave", maker(Careless))
    assert small.scripts[0] == ((ASK,),)
    assert (small.acts, small.choices, small.resumes) == ((), (), 0)


# -- a state machine ----------------------------------------------------------------------------------------------------

PROMPTS = st.sampled_from(("first", "second"))
LEVELS = st.sampled_from(("now", "step"))
WHY = st.sampled_from(REASONS)
TURNS = st.lists(
    st.sampled_from(
        (
            say(["one ", "two "]),
            fail("the line broke"),
            *(("quick", 0.0), ("slow", 0.1), ("polling", 0.1), ("ask_quick", 0.0), ("ask_slow", 0.1), ("swallowing", 0.1)),
        )
    ),
    min_size=1,
    max_size=4,
)


class View:
    """What one page knows of a run: what it was when the page came, and each event since, both as JSON."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.asked = {call.id: fingerprint(call.name, call.input) for call in run.transcript.waiting}
        self._builder = TranscriptBuilder(TRANSCRIPT.validate_json(TRANSCRIPT.dump_json(run.transcript)))
        run.listen(self._hear)

    def _hear(self, _: Run, event: ev.Event | None) -> None:
        if event is not None:
            self._builder.apply(load_event(json.dumps(dump_event(event))))

    @property
    def transcript(self) -> Transcript:
        return self._builder.freeze()


class Conversation(RuleBasedStateMachine):
    """One session, driven by whoever does whatever, a few turns of the loop at a time.

    It is looked at by several pages, saved at any moment, and now and then its kernel dies and a new one goes on from
    what was saved.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stage: Stage
        self.runs: list[Run] = []
        self.views: list[View] = []
        self.folder = Path(tempfile.mkdtemp())

    @initialize(first=st.lists(TURNS, max_size=4), second=st.lists(TURNS, max_size=4))
    def begin(self, first: list[list[Item | tuple[str, float]]], second: list[list[Item | tuple[str, float]]]) -> None:
        keys = iter(range(1000))
        scripts = tuple(
            tuple(tuple(self._item(item, next(keys)) for item in turn) for turn in turns) for turns in (first, second)
        )
        self.stage = Stage(Story(way="session", scripts=scripts))
        self.stage.life = Life(self.stage)

    def _item(self, item: Item | tuple[str, float], number: int) -> Item:
        return call(item[0], {"key": f"k{number}", "seconds": item[1]}, f"c{number}") if isinstance(item, tuple) else item

    def _now(self) -> Run | None:
        watch = self.stage.life.current()
        return watch.run if watch else None

    @property
    def _last(self) -> Run | None:
        """The newest run of this kernel."""
        return self.stage.life.watches[-1].run if self.stage.life.watches else None

    @rule(prompt=PROMPTS)
    def ask(self, prompt: str) -> None:
        session = self.stage.life.session
        assert session is not None
        if len(self.runs) < 6:
            self.runs.append(self.stage.life.context.copy().run(session.run, prompt, before_start=self.stage.life.watch))

    @rule(level=LEVELS, reason=WHY, through=st.sampled_from(("run", "session", "agent")))
    def stop(self, level: StopLevel, reason: str, through: str) -> None:
        self.stage.stop(level, reason, through)

    @precondition(lambda self: self.runs)
    @rule(answer=st.sampled_from(("approve", "deny", "first", "mixed", "twice", "both", "always", "deny and stop")), why=WHY)
    def decide(self, answer: Any, why: str) -> None:
        if (run := self._now()) is not None:
            self.stage._decide(run, Choice(answer, why, 1))

    @precondition(lambda self: len(self.runs) < 6 and self._last is not None and self._last.is_over)
    @rule()
    def resume(self) -> None:
        last = self._last
        assert last is not None
        self.runs.append(self.stage.life.context.copy().run(last.resume))

    @precondition(lambda self: self.runs and len(self.views) < 6)
    @rule()
    def look(self) -> None:
        self.views.append(View(self._now() or self.runs[-1]))

    @precondition(lambda self: self.views)
    @rule(number=st.integers(0, 5), confirmed=st.booleans(), why=WHY)
    def click_twice_in_a_view(self, number: int, why: str, *, confirmed: bool) -> None:
        view = self.views[number % len(self.views)]
        for call_id, seen in view.asked.items():
            call = next((waits for waits in view.run.transcript.waiting if waits.id == call_id), None)
            if confirmed and call is not None and view.run.status == "paused":
                self.stage._allow(call, None, always=False)
            decision = Decision(confirmed=confirmed, reason="" if confirmed else why, seen=seen)
            taken = [not view.run.decide(call_id, decision) for _ in range(2)]
            assert not taken[1]
            assert taken[0] or call is None or call.state != "asking" or call_id in view.run._inbox._decisions

    @rule()
    def save(self) -> None:
        session = self.stage.life.session
        assert session is not None
        session.save(self.folder / "saved")
        loaded = Agent(ScriptedModel([]))
        with closing(Session.load(self.folder / "saved", loaded)):
            assert loaded.state.check() == ()
            assert [call.id for call in loaded.state.waiting()] == [call.id for call in self.stage.life.agent.state.waiting()]
            assert len(loaded.state.context) == len(self.stage.life.agent.state.context)

    @precondition(lambda self: self.runs)
    @rule()
    def restart_the_kernel(self) -> None:
        self.stage.crash()
        self.wait(10)
        assert all(run.is_over for run in self.runs)
        self.stage._second = None
        self.stage._be_reborn()
        session = self.stage.life.session
        assert session is not None
        if self.stage.life.agent.state.waiting():
            self.runs.append(self.stage.life.context.copy().run(session.run, None, before_start=self.stage.life.watch))

    @rule(turns=st.integers(1, 30))
    def turn(self, turns: int) -> None:
        with threads_in_step():
            for _ in range(turns):
                self.stage.loop.run_until_complete(asyncio.sleep(0))

    @rule(seconds=st.sampled_from((0.01, 0.1, 1.0)))
    def wait(self, seconds: float) -> None:
        with threads_in_step():
            self.stage.loop.run_until_complete(asyncio.sleep(seconds))

    @invariant()
    def the_history_is_valid(self) -> None:
        if hasattr(self, "stage"):
            assert self.stage.life.agent.state.check() == ()
            assert not self.stage.faults
            repaired: AgentState = self.stage.life.agent.state.repair()
            assert repaired.check() == ()
            for view in self.views:
                assert view.transcript == view.run.transcript

    def teardown(self) -> None:
        shutil.rmtree(self.folder)
        if not hasattr(self, "stage"):
            return
        for run in self.runs:
            run.stop(reason="the end")
        for watch in self.stage.life.watches:
            watch.may_be_interrupted = True
        self.wait(10)
        assert all(run.is_over for run in self.runs)
        with threads_in_step():
            self.stage.loop.run_until_complete(self.stage._finish())
        self.stage.close()
        assert not self.stage.faults


def test_a_conversation_in_any_order_keeps_the_contract() -> None:
    run_state_machine_as_test(
        Conversation, settings=settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, database=None)
    )


# -- what the stories found: each of these went wrong once --------------------------------------------------------------

DONE = (say(["Done."]),)
SECOND = ((say(["Second."]),),)
DEAF = call("deaf", {"key": "k1", "seconds": 0.2}, "c1")
FOUND = {
    "a model that swallows its cancel and asks for a tool": Story(
        way="reply",
        scripts=(((say(["a", "b", "c"]),),), SECOND),
        stubborn_model="goes on",
        acts=(Act(at=4, by="event", deed="now"),),
    ),
    "a stop with the denial of the last step's call": Story(
        way="session", scripts=(((ASK,),), SECOND), max_steps=1, choices=(Choice("deny and stop", "no"),)
    ),
    "a stop with the denial before a model call that fails": Story(
        way="session", scripts=(((ASK,), (fail("the line broke"),)), SECOND), choices=(Choice("deny and stop", "no"),)
    ),
    "a state saved at the event of a result": Story(
        way="session", scripts=(((call("quick", {"key": "k1", "seconds": 0.0}, "c1"),), DONE), SECOND), resumes=1
    ),
    "a cancelled reader that closes the stream on a closing event": Story(
        way="stream", scripts=((DONE,), SECOND), reading="close", read=5, acts=(Act(at=4, by="event", deed="cancel"),)
    ),
    "resuming a run that was stopped before it began": Story(
        way="session", scripts=((DONE,), SECOND), resumes=1, acts=(Act(at=2, by="turn", deed="now"),)
    ),
    "the agent's interrupt in a pause that was loaded": Story(
        way="session", scripts=(((ASK,), DONE), SECOND), choices=(Choice("move"), Choice("interrupt", "enough"))
    ),
    "a thread that ends in the moment in which its grace is over": Story(
        way="reply", scripts=(((call("self_stopping", {"key": "k2", "seconds": 0.0}, "c2"), DEAF), DONE), SECOND)
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_went_wrong_once_goes_well(name: str) -> None:
    crashes = [()] if name != "a state saved at the event of a result" else [(Act(at, "event", "crash"),) for at in range(1, 20)]
    for acts in crashes:
        story = replace(FOUND[name], acts=FOUND[name].acts + acts)
        assert play(story) == (), acts


async def test_the_agents_interrupt_reaches_a_session_run_before_its_first_step() -> None:
    agent = Agent(ScriptedModel([[say("never")]]))
    session = Session(agent, loop=asyncio.get_running_loop())
    run = session.run("go")
    agent.interrupt(reason="at once")
    await run
    assert run.status == "interrupted"
    session.close()
