"""The stage: carries one story on a loop of its own and gives the faults that it found."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, cast

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Inputs
from agent_widgets.decisions import Decision, StopLevel
from agent_widgets.errors import AgentBusyError, InputError, NotWaitingError
from agent_widgets.messages import ToolCallBlock
from agent_widgets.models.scripted import Call, Item, say
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import valid_arguments
from agent_widgets.wire import load_state
from tests.fuzz.cast import TOOLS
from tests.fuzz.checks import Fault, Kind, key_of, results_by_key
from tests.fuzz.clock import Hang, VirtualLoop, threads_in_step
from tests.fuzz.judging import ReaderFailedError, judge_leg, judge_results, judge_run
from tests.fuzz.lives import Life, Maker, Watch, watched_agent
from tests.fuzz.stories import Act, Choice, Story, simpler


def play(story: Story, maker: Maker | None = None) -> tuple[Fault, ...]:
    """Carry a story to its end, and the prompt after it. Gives what was wrong."""
    stage = Stage(story, maker)
    try:
        with threads_in_step():
            stage.carry(stage.play())
    except Hang as error:
        stage.fault("leftover", f"it waits for ever: {error}")
    finally:
        stage.close()
    return tuple(dict.fromkeys(stage.faults))


class Stage:
    """One story and what is known of it."""

    def __init__(self, story: Story, maker: Maker | None = None) -> None:
        self.story = story
        self.maker = maker or watched_agent
        self.loop = VirtualLoop()
        self.changed = asyncio.Event()
        self.faults: list[Fault] = []
        self.ran: dict[str, int] = {}
        self.finished: dict[str, str] = {}
        self.noticed: set[str] = set()
        self.allowed: dict[str, set[str]] = {}
        self.denied: dict[str, str] = {}
        self.always: set[str] = set()
        self.asked = {
            key_of(item.arguments): item for script in story.scripts for turn in script for item in turn if isinstance(item, Call)
        }
        self.pause_was_ended = False
        self.life: Life
        self.lives: list[Life] = []
        self.snapshot: str = ""
        self._scripts = [list(script) for script in story.scripts]
        self._acts = list(story.acts)
        self._choices = list(story.choices)
        self._resumes = story.resumes
        self._timeout = story.timeout
        self._events = 0
        self._must_have: dict[str, str] = {}
        self._target: asyncio.Task[object] | None = None
        self._was_cancelled = False
        self._expired = False
        self._cancels = 0
        self._has_waited = self._reader_left = False
        self._awaited: Run | None = None
        self._second: Run | None = None
        self.loop.set_exception_handler(self._unseen)

    def fault(self, kind: Kind, text: str) -> None:
        self.faults.append(Fault(kind, text))

    def carry(self, work: Any) -> None:
        """Run ``work`` on the loop."""
        self.loop.on_turn = lambda turn: self._due("turn", turn)
        self.loop.on_idle = self._next_act
        self.loop.run_until_complete(work)

    def close(self) -> None:
        """End the loop; what is left on it is dropped."""
        self.loop.on_turn, self.loop.on_idle = lambda _: False, lambda: False
        self.loop.let_go()
        if getattr(self, "life", None) is not None and self.life.session is not None:
            self.life.session.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.set_exception_handler(_say_nothing)
        with suppress(Hang):
            self.loop.run_until_complete(asyncio.sleep(10))
        self.loop.close()

    def _unseen(self, _: object, context: dict[str, Any]) -> None:
        self.fault("wrong outcome", f"failed unseen: {context.get('message')}: {context.get('exception')!r}")

    # -- what the cast says -------------------------------------------------------------------------------------

    def began(self, key: str, name: str, given: dict[str, Any]) -> None:
        self.ran[key] = self.ran.get(key, 0) + 1
        if self.ran[key] > 1:
            self.fault("executed twice", f"{name} {key} ran {self.ran[key]} times")
        if key in self.denied:
            self.fault("executed without leave", f"{name} {key} was denied")
        if key not in self.asked:
            self.fault("executed without leave", f"{name} {key} was asked for after the stop")
            return
        if key in self.allowed:
            if given not in [json.loads(text) for text in self.allowed[key]]:
                self.fault("executed without leave", f"{name} {key} ran with {given}, allowed was {self.allowed[key]}")
        elif TOOLS[name].confirm and name not in self.always:
            self.fault("executed without leave", f"{name} {key} was never approved")
        elif given != json.loads(valid_arguments(self.asked[key].arguments)):
            self.fault("executed without leave", f"{name} {key} ran with {given}, not with {self.asked[key].arguments}")

    def next_turn(self, prompt: str) -> tuple[Item, ...]:
        turns = self._scripts[("first", "second").index(prompt)]
        return turns.pop(0) if turns else (say("Enough."),)

    def took_effect(self, decisions: ev.UserConfirmResultEvent) -> None:
        """A decision is in the log."""
        for result in decisions.confirm_results:
            key = key_of(result.tool_call.input)
            if not result.confirmed:
                self.denied[key] = result.reason
            elif result.tool_call.input not in self.allowed.get(key, ()):
                self.fault("executed without leave", f"{key} was approved with {result.tool_call.input} by nobody")

    # -- who interferes -----------------------------------------------------------------------------------------

    def count_event(self) -> None:
        self._events += 1
        self._due("event", self._events)

    def _due(self, by: str, count: float) -> bool:
        due = [act for act in self._acts if act.by == by and act.at <= count]
        for act in due:
            self._acts.remove(act)
            self._do(act)
        return bool(due)

    def _next_act(self) -> bool:
        if self._acts:
            self._do(self._acts.pop(0))
            return True
        return False

    def _do(self, act: Act) -> None:
        if hasattr(self, "life"):
            self.life.context.copy().run(self._interfere, act)

    def _interfere(self, act: Act) -> None:
        match act.deed:
            case "now" | "step":
                self.stop(act.deed, act.reason, act.through)
            case "now twice":
                self.stop("now", act.reason, act.through)
                self.stop("now", act.reason + "!", act.through)
            case "step, then now":
                self.stop("step", act.reason, act.through)
                self.stop("now", act.reason + "!", act.through)
            case "cancel":
                self._cancel()
            case "crash":
                self.crash()
            case "second":
                self._ask_second()
            case "stop second":
                if self._second is not None and (watch := self.life.watch_of(self._second)) is not None:
                    watch.reasons.append(act.reason)
                    self._second.stop("now", act.reason)
                    self.loop.call_soon_threadsafe(self._took, watch, "now")
            case "approve" | "deny":
                if self.life.session is not None and (watch := self.life.current()) is not None:
                    self._decide(watch.run, Choice(act.deed, act.reason))

    def stop(self, level: StopLevel, reason: str, through: str) -> None:
        """Stop what runs, from somewhere; what must follow is noted when the loop has taken it."""
        life = self.life
        agent_run = life.agent._run
        watch = life.current() if through in ("run", "session") else life.watch_of(agent_run)
        if watch is not None and watch.run.is_over:
            watch = None
        if watch is not None:
            watch.reasons.append(reason)
        elif life.agent.state.waiting():
            self.pause_was_ended = True
        if through == "run":
            if watch is not None:
                watch.run.stop(level, reason)
        elif through == "session" and life.session is not None:
            life.session.interrupt(level, reason)
        elif through == "thread":
            other = threading.Thread(target=life.agent.interrupt, args=(level, reason))
            other.start()
            other.join()
        else:
            life.agent.interrupt(level, reason)
        if watch is not None:
            self.loop.call_soon_threadsafe(self._took, watch, level)

    def _took(self, watch: Watch, level: StopLevel) -> None:
        if not watch.run.is_over and not watch.has_ended:
            watch.must_end = True
            watch.must_be_interrupted |= level == "now"

    def _cancel(self) -> None:
        if self._target is not None and self._target.cancel():
            self._was_cancelled = True
            self._cancels += 1
            self._may_all_be_interrupted()

    def _may_all_be_interrupted(self) -> None:
        for watch in self.life.watches:
            watch.may_be_interrupted = True

    def crash(self) -> None:
        """The kernel dies here: what is saved now is all that there will be."""
        if self.snapshot or not self.life.is_alive:
            return
        life = self.life
        saved = life.agent.dump()
        self.snapshot = json.dumps(saved)
        if load_state(json.loads(self.snapshot)) != load_state(saved):
            self.fault("invalid history", "the state does not round-trip")
        kept = results_by_key(life.agent.state.context)
        for key in [key for key in self.denied if key not in kept or kept[key][1].state == "running"]:
            del self.denied[key]  # told, and its result not yet: the call is closed as interrupted, without the reason
        said: dict[str, str] = {}
        for watch in life.watches:
            said |= {key: result.text() for key, (_, result) in results_by_key([watch.run.reply]).items()}
        self._must_have |= {key: text for key, text in self.finished.items() if text in said.get(key, "")}
        life.is_alive = False
        self.finished = {}
        if self._target is not None:
            self._target.cancel()
        if life.session is not None:
            life.session.close()
        self.changed.set()

    def _ask_second(self) -> None:
        life = self.life
        if life.session is not None:
            if self._second is None:
                self._second = life.session.run("second", before_start=life.watch)
            return
        run = life.agent._run
        if run is None or not run.is_busy:
            return
        asked = life.agent.reply("second")
        try:
            asked.send(None)
            if not run.is_abandoned:  # one whose reader has left is ending: the next reply waits for that
                self.fault("wrong outcome", "a second reply was not refused while one was carried")
        except AgentBusyError:
            pass
        finally:
            asked.close()

    # -- the story ----------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """The whole story, the checks, and the prompt after it."""
        for act in [act for act in self._acts if act.by == "second"]:
            self.loop.call_later(act.at, self._at_second, act)
        self.life = Life(self)
        await (self._play_session() if self.life.session else self._play_agent())
        self._acts.clear()
        await self._finish()

    def _at_second(self, act: Act) -> None:
        if act in self._acts:
            self._acts.remove(act)
            self._do(act)

    async def _play_agent(self) -> None:
        inputs: Inputs = "first"
        leads_on = True
        for _ in range(40):
            if leads_on:
                await self._leg(inputs)
            leads_on = True
            if self.snapshot:
                self._be_reborn()
            agent = self.life.agent
            if agent.state.waiting():
                leads_on, inputs = self._choose(agent)
            elif (
                self._resumes and agent.state.context and agent._run is not None and agent._run.status in ("interrupted", "error")
            ):
                self._resumes -= 1
                inputs = None
            else:
                return
        self.fault("leftover", "the story does not end")

    def _be_reborn(self) -> None:
        state = load_state(json.loads(self.snapshot))
        self.snapshot = ""
        self.life = Life(self, state)
        context = self.life.agent.state.context
        for fault in self.life.agent.state.check():
            self.fault("invalid history", f"after a crash: {fault}")
        kept = {key: result.text() for key, (_, result) in results_by_key(context).items()}
        for key, text in self._must_have.items():
            if text not in kept.get(key, ""):
                self.fault("result lost", f"{key} was in the log before the crash, and is not in the state: {kept.get(key)!r}")

    async def _leg(self, inputs: Inputs) -> None:
        life, before = self.life, len(self.life.watches)
        self._was_cancelled = self._expired = False
        self._cancels = 0
        self._target = task = self.loop.create_task(self._use(inputs))
        await asyncio.wait([task])
        self._target = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        watch = life.watches[-1] if len(life.watches) > before else None
        if life.is_alive:
            await self._settled(watch)
            judge_leg(self, watch, error)
        else:
            await self._settled(watch)

    async def _settled(self, watch: Watch | None) -> None:
        """A reader that walked away leaves a stop behind, which takes a moment."""
        for number in range(200):
            if watch is None or watch.run.is_over:
                break
            await asyncio.sleep(0 if number < 100 else 0.1)
        else:
            self.fault("leftover", "the run goes on after its caller has left")
        await self._check_strays()

    async def _check_strays(self) -> None:
        run = self._awaited
        was_paused = run is not None and run.status == "paused"
        for _ in range(6):
            await asyncio.sleep(0)
        if run is not None and was_paused and run.status != "paused":
            return  # an act has gone on with it
        names = {name for life in self.lives for name in life.left_behind()}
        mine = (asyncio.current_task(), self._target)
        for task in asyncio.all_tasks():
            if task not in mine and task.get_name() not in names:
                self.fault("leftover", f"a task: {task.get_coro()!r:.120} {task.get_name()}")

    async def _use(self, inputs: Inputs) -> None:
        seconds, self._timeout = self._timeout, None
        self._cancels += seconds is not None  # a cancel may come from there too
        self._reader_left = False
        if seconds is None:
            await self._call(inputs)
            return
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                await self._call(inputs)
        finally:
            self._expired = scope.expired()
            if self._expired:
                self._may_all_be_interrupted()

    async def _call(self, inputs: Inputs) -> None:
        agent = self.life.agent
        if self.story.way == "reply":
            await agent.reply(inputs)
            return
        reading, left = self.story.reading, self.story.read
        read: list[ev.Event] = []
        before = len(self.life.watches)
        try:
            if reading == "close":
                async with aclosing(agent.reply_stream(inputs)) as stream:
                    async for event in stream:
                        read.append(event)
                        if len(read) == left:
                            self._leave()
                            return
            else:
                async for event in agent.reply_stream(inputs):
                    read.append(event)
                    if reading == "slow":
                        await asyncio.sleep(0.001)
                    elif len(read) == left and reading in ("break", "fail"):
                        self._leave()
                        if reading == "fail":
                            raise ReaderFailedError
                        return
        finally:
            if reading == "all" and self.life.is_alive and self._cancels < 2 and len(self.life.watches) > before:
                watch = self.life.watches[-1]
                heard = [event for event in watch.events if event is not inputs]
                if [event.id for event in read] != [event.id for event in heard]:
                    self.fault("broken log", f"the reader read {len(read)} events of {len(heard)}")

    def _leave(self) -> None:
        self._reader_left = True
        self.life.watches[-1].may_be_interrupted = True

    # -- pauses -------------------------------------------------------------------------------------------------

    def _choice(self) -> Choice:
        return self._choices.pop(0) if self._choices else Choice("approve")

    def _allow(self, call: ToolCallBlock, text: str | None = None, *, always: bool = False) -> None:
        self.allowed.setdefault(key_of(call.input), set()).add(call.input if text is None else text)
        if always:
            self.always.add(call.name)

    def _choose(self, agent: Agent) -> tuple[bool, Inputs]:
        """What the next reply starts from; ``False`` when there is none."""
        choice, reply_id = self._choice(), agent.state.reply_id
        waiting = agent.state.waiting()
        answers = {call.id: (True, call) for call in waiting}
        match choice.answer:
            case "deny" | "deny and stop":
                answers = {call.id: (False, call) for call in waiting}
            case "first":
                answers = {waiting[0].id: (True, waiting[0])}
            case "mixed":
                answers = {call.id: (not choice.mask >> i & 1, call) for i, call in enumerate(waiting)}
            case "edit":
                answers[waiting[0].id] = (True, replace(waiting[0], input=_edited(waiting[0], choice.answer)))
            case "bad edit":
                misfit = replace(waiting[0], input=_edited(waiting[0], choice.answer))
                self._refuses(agent, _decision(reply_id, {misfit.id: (True, misfit)}, choice), InputError)
            case "user interrupt":
                return True, ev.UserInterruptEvent(reply_id=reply_id)
            case "interrupt":
                agent.interrupt("now", choice.reason)
                if agent.state.waiting():
                    self.fault("wrong outcome", "interrupt() left a pause open")
                return False, None
            case "move":
                self.crash()
                self._be_reborn()
                return False, None
            case "prompt":
                self._refuses(agent, "second", NotWaitingError)
                return False, None
            case "stale":
                stale = _decision("another reply", {waiting[0].id: (True, waiting[0])}, choice)
                self._refuses(agent, stale, NotWaitingError)
                self._refuses(agent, replace(stale, reply_id=reply_id, confirm_results=stale.confirm_results * 2), InputError)
                return False, None
            case _:
                pass
        for confirmed, call in answers.values():
            if confirmed:
                self._allow(call, always=choice.answer == "always")
        decision = _decision(reply_id, answers, choice)
        if choice.answer in ("twice", "both"):
            self.loop.call_soon(self._repeat, agent, decision)
        return True, decision

    def _repeat(self, agent: Agent, decision: ev.UserConfirmResultEvent) -> None:
        """The same click once more, when the first has begun or ended."""
        run = agent._run
        if run is not None and run.is_busy and agent is self.life.agent:
            self._refuses(agent, decision, AgentBusyError)

    def _refuses(self, agent: Agent, inputs: Inputs, error: type[Exception]) -> None:
        asked = agent.reply(inputs)
        try:
            asked.send(None)
            self.fault("wrong outcome", f"{inputs!r:.60} was taken at the wrong time")
        except error:
            pass
        finally:
            asked.close()

    # -- sessions -----------------------------------------------------------------------------------------------

    async def _play_session(self) -> None:
        session = cast("Session", self.life.session)
        run: Run | None = session.run("first", before_start=self.life.watch, deadline=self.story.deadline)
        for _ in range(80):
            if run is None:
                return
            await self._wait_for(run)
            if self.snapshot:
                run = await self._go_on_after_crash(run)
            elif run.status == "paused":
                if not self.snapshot:
                    await self._check_strays()
                if run.status == "paused" and not self.snapshot:
                    self._choose_in(run)
                for _ in range(6):
                    await asyncio.sleep(0)
            else:
                run = self._next_run(run)
        self.fault("leftover", "the story does not end")

    async def _await(self, run: Run) -> object:
        self._has_waited = True
        return await run

    def _next_run(self, run: Run) -> Run | None:
        session = cast("Session", self.life.session)
        if self._resumes and run.status in ("interrupted", "error"):
            self._resumes -= 1
            run.resume()
        left = [other for other in session.runs if not other.is_over]
        return left[0] if left else None

    async def _go_on_after_crash(self, run: Run) -> Run | None:
        old = cast("Session", self.life.session)
        while not all(other.is_over for other in old.runs):
            await asyncio.sleep(0.1)
        self._second = None
        self._be_reborn()
        session = cast("Session", self.life.session)
        waits = bool(self.life.agent.state.waiting())
        goes_on = waits or (self._resumes and self.life.agent.state.context)
        return session.run(None if goes_on else "second", before_start=self.life.watch)

    async def _wait_for(self, run: Run) -> None:
        """Until it has ended or paused, or the kernel has died; somebody awaits it all the while."""
        if self._target is None or self._awaited is not run:
            self._was_cancelled = self._has_waited = False
            self._awaited, self._target = run, self.loop.create_task(self._await(run))
            await asyncio.sleep(0)
        waiter = self._target
        while not (run.is_over or run.status == "paused" or self.snapshot):
            self.changed.clear()
            await self.changed.wait()
        if run.is_over or self._was_cancelled or self.snapshot:
            await asyncio.wait([waiter])
            self._target = None
            if self._was_cancelled and self.life.is_alive and not waiter.cancelled():
                self.fault("wrong outcome", "a cancelled waiter was not told")
            if self._was_cancelled and self._has_waited and not run.is_over:
                self.fault("wrong outcome", "a waiter gave up before the run had ended")
            if not waiter.cancelled() and waiter.exception() is not run.error:
                self.fault("wrong outcome", f"await run raised {waiter.exception()!r}, the run has {run.error!r}")

    def _choose_in(self, run: Run) -> None:
        choice = self._choice()
        match choice.answer:
            case "user interrupt":
                self.stop("now", choice.reason, "run")
            case "interrupt":
                self.stop("now", choice.reason, "agent")
            case "move":
                self.crash()
            case "prompt":
                self._ask_second()
            case "stale":
                said = run.decide(run.transcript.waiting[0].id, Decision(confirmed=True, seen="another"))
                if not said or not run.decide("no such call", Decision(confirmed=True)):
                    self.fault("wrong outcome", "a stale decision was taken")
            case "bad edit":
                try:
                    run.approve(arguments="no JSON")
                    self.fault("wrong outcome", "arguments that are no JSON were taken")
                except InputError:
                    self._decide(run, choice)
            case _:
                self._decide(run, choice)

    def _decide(self, run: Run, choice: Choice) -> None:
        """Decide as a person does; what is allowed is noted when the loop takes it."""
        waiting = run.transcript.waiting
        first = waiting[0].id if waiting else None
        match choice.answer:
            case "deny":
                run.deny(reason=choice.reason)
            case "deny and stop":
                if (watch := self.life.watch_of(run)) is not None:
                    watch.reasons.append(choice.reason)
                    run.deny(reason=choice.reason, stop=True)
                    self.loop.call_soon_threadsafe(self._took, watch, "now")
            case "first":
                self._approve(run, first)
            case "mixed":
                for number, call in enumerate(waiting):
                    if choice.mask >> number & 1:
                        run.deny(call.id, choice.reason)
                    else:
                        self._approve(run, call.id)
            case "edit" if waiting:
                self._approve(run, first, _edited(waiting[0], choice.answer))
            case "bad edit" if waiting:
                with suppress(InputError):  # none for a call that waits for no decision
                    self._approve(run, first, _edited(waiting[0], choice.answer))
                    if waiting[0].state == "asking" and not run.is_over:
                        self.fault("wrong outcome", "arguments that do not fit were taken")
                self._approve(run, first)
            case "both":
                self._approve(run, first)
                run.deny(first, choice.reason)
            case "twice":
                self._approve(run)
                self._approve(run)
            case _:
                self._approve(run, always=choice.answer == "always")

    def _approve(self, run: Run, call_id: str | None = None, text: str | None = None, *, always: bool = False) -> None:
        def note() -> None:
            for call in run.transcript.waiting:
                if call_id in (None, call.id):
                    self._allow(call, text, always=always)

        run.approve(call_id, arguments=text, always=always)
        self.loop.call_soon_threadsafe(note)

    # -- the end ------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        life = self.life
        agent = life.agent
        if agent.state.waiting():
            agent.interrupt()
        await self._check_strays()
        for watch in life.watches:
            judge_run(self, watch)
        state = agent.state
        if state.reply_id:
            self.fault("wrong outcome", "a reply is open at the end")
        for fault in state.check():
            self.fault("invalid history", fault)
        judge_results(self, state)
        if load_state(json.loads(json.dumps(agent.dump()))) != state:
            self.fault("invalid history", "the state does not round-trip")
        try:
            if life.session:
                answer = await life.session.run("next", before_start=life.watch)
            else:
                answer = await agent.reply("next")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            self.fault("wrong outcome", f"the next prompt failed: {error!r}")
            return
        if answer.text != "All is well.":
            self.fault("wrong outcome", f"the next prompt's answer was {answer.text!r}")
        before = agent.dump()
        for _ in range(40):
            if not self.loop.threads and len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0.25)
        await self._check_strays()
        if agent.dump() != before:
            self.fault("invalid history", "a tool that was left behind changed it")
        if life.late() != Counter(life.left_behind()):
            self.fault("result lost", f"left behind: {sorted(life.left_behind())}; told when they ended: {dict(life.late())}")


def _decision(reply_id: str, answers: dict[str, tuple[bool, ToolCallBlock]], choice: Choice) -> ev.UserConfirmResultEvent:
    results = tuple(
        ev.ConfirmResult(
            confirmed=confirmed,
            tool_call=call,
            reason="" if confirmed else choice.reason,
            rules=call.suggested_rules if confirmed and choice.answer == "always" else None,
        )
        for confirmed, call in answers.values()
    )
    return ev.UserConfirmResultEvent(reply_id=reply_id, confirm_results=results)


def _edited(call: ToolCallBlock, answer: str) -> str:
    given = json.loads(call.input)
    if answer == "edit":  # a person mends what does not fit, too
        return json.dumps({name: value for name, value in given.items() if name in ("key", "seconds")} | {"note": "edited"})
    return json.dumps({**given, "seconds": "not a number"})


def shrunk(story: Story, kind: Kind, maker: Maker | None = None) -> Story:
    """The smallest story found that still has a fault of this kind."""
    for smaller in simpler(story):
        if any(fault.kind == kind for fault in play(smaller, maker)):
            return shrunk(smaller, kind, maker)
    return story


def _say_nothing(_: object, context: dict[str, Any]) -> None:
    """The loop's exception handler when everything has been judged."""
