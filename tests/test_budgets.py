"""Budgets: what counts, what goes beyond, and that nothing begins after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, UsageReport
from agent_widgets.budgets import Budget, Meter
from agent_widgets.errors import InputError
from agent_widgets.messages import JsonObject, PermissionRule, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say, wait
from agent_widgets.sessions import Session
from agent_widgets.tools import tool
from tests.validator import assert_valid

R: dict[str, Any] = {"reply_id": "r"}
done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@pytest.fixture(autouse=True)
def nothing_failed_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a callback of the loop raises is only logged: here it fails the test."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


@tool
async def work(name: str = "") -> str:
    """Work at once, without a single await."""
    done.append(name)
    return "worked"


@tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    done.append(table)
    return f"deleted from {table}"


def agent_of(*script: Turn, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(script))
    return Agent(model, tools=[work, delete_rows], **options), model


def used(tokens: int) -> UsageReport:
    return UsageReport(input_tokens=tokens - 1, output_tokens=1)


def facts(agent: Agent) -> JsonObject:
    """Why its last reply was stopped."""
    assert agent._run is not None
    metadata = agent._run.reply.metadata
    return {key: metadata[key] for key in ("source", "when", "reason") if key in metadata}


def why(reason: str) -> JsonObject:
    return {"source": "budget", "when": "now", "reason": reason}


async def assert_goes_on(agent: Agent, model: ScriptedModel) -> None:
    """The history is valid, and a reply without a budget is answered."""
    assert agent.state.check() == ()
    assert agent.state.reply_id == ""
    agent.budget = None
    agent.model = after = ScriptedModel(["fine"])
    assert (await agent.reply("next")).text == "fine"
    assert_valid(after.requests[0].messages)


# -- the value ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"seconds": 0}, "seconds is 0; it must be a number of seconds above 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"tokens": -1}, "tokens is -1; it must be a whole number above 0"),
        ({"steps": 1.5}, "steps is 1.5; it must be a whole number above 0"),
        ({"tool_calls": True}, "tool_calls is True"),
        ({"tool_calls": "3"}, "tool_calls is '3'"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(limits: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Budget(**limits)


@pytest.mark.parametrize("wrong", [5, {"steps": 5}])
async def test_what_is_no_budget_is_refused_everywhere(wrong: Any) -> None:
    with pytest.raises(InputError, match="it must be a Budget"):
        Agent(ScriptedModel([]), budget=wrong)
    session = Session(Agent(ScriptedModel([])), loop=asyncio.get_running_loop())
    with pytest.raises(InputError, match="it must be a Budget"):
        session.run("go", budget=wrong)
    session.close()


def test_a_cut_model_call_is_neither_counted_nor_unknown() -> None:
    meter = Meter(Budget(tokens=1), None)
    meter.exceeded(ev.ToolCallStartEvent(tool_call_id="c", tool_call_name="work", **R))
    cut = ev.ModelCallEndEvent(input_tokens=0, output_tokens=0, finished_reason="interrupted", metadata={"usage": "unknown"}, **R)
    assert meter.exceeded(cut) == ""
    assert meter.exceeded(replace(cut, finished_reason="completed")) != ""


# -- each limit -----------------------------------------------------------------------------------------------------


async def test_a_step_too_many_is_stopped_before_the_model_is_asked() -> None:
    agent, model = agent_of(call("work"), call("work"), "never", budget=Budget(steps=2))
    reply = await agent.reply("go")
    assert reply.metadata["_is_interrupted"] is True
    assert facts(agent) == why("the budget of 2 steps is used up: this would be step 3")
    assert (len(model.requests), len(done)) == (2, 2)
    await assert_goes_on(agent, model)


async def test_a_tool_call_too_many_does_not_even_begin() -> None:
    agent, model = agent_of(call("work", {"name": "a"}), call("work", {"name": "b"}), "never", budget=Budget(tool_calls=1))
    await agent.reply("go")
    assert facts(agent) == why("the budget of 1 tool call is used up: this would be call 2")
    assert done == ["a"]
    states = [block.state for block in agent.state.context[-1].content if isinstance(block, ToolResultBlock)]
    assert states == ["success", "interrupted"]
    await assert_goes_on(agent, model)


async def test_a_denied_call_counts_and_no_question_is_left_behind() -> None:
    turn = [call("work"), call("work"), call("delete_rows", {"table": "t"})]
    agent, model = agent_of(turn, permissions=[PermissionRule("work", None, "deny")], budget=Budget(tool_calls=1))
    await agent.reply("go")
    assert facts(agent) == why("the budget of 1 tool call is used up: this would be call 2")
    assert (done, agent.state.waiting()) == ([], ())
    await assert_goes_on(agent, model)


async def test_what_a_call_beyond_the_tokens_asks_for_does_not_run() -> None:
    agent, model = agent_of([call("work", {"name": "a"}), used(600)], [call("work"), used(600)], budget=Budget(tokens=1000))
    await agent.reply("go")
    assert facts(agent) == why("the budget of 1,000 tokens is used up: 1,200 so far")
    assert done == ["a"]
    usage = agent.state.context[-1].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.unknown_calls) == (1198, 2, 0)
    await assert_goes_on(agent, model)


async def test_a_question_beyond_the_tokens_is_not_asked() -> None:
    agent, model = agent_of([call("delete_rows", {"table": "t"}), used(2000)], budget=Budget(tokens=1000))
    seen = [event.type async for event in agent.reply_stream("go")]
    assert "REQUIRE_USER_CONFIRM" not in seen
    assert agent.state.waiting() == ()
    await assert_goes_on(agent, model)


async def test_an_answer_that_is_complete_is_complete_however_much_it_took() -> None:
    agent, _ = agent_of([say("all of it"), used(2000)], budget=Budget(tokens=1000))
    reply = await agent.reply("go")
    assert (reply.text, reply.finished_reason, reply.metadata) == ("all of it", "completed", {})


async def test_exactly_the_budget_is_not_beyond_it() -> None:
    turns = [[call("work"), used(500)], [say("ok"), used(500)]]
    agent, _ = agent_of(*turns, budget=Budget(tokens=1000, steps=2, tool_calls=1, seconds=60))
    assert (await agent.reply("go")).finished_reason == "completed"


async def test_unknown_usage_is_not_0_and_the_reason_says_so() -> None:
    class Silent:
        name = "silent"

        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
            yield TextPiece("hm ")
            async for piece in ScriptedModel([call("work")]).stream(request):
                if not isinstance(piece, UsageReport):
                    yield piece

    agent = Agent(Silent(), tools=[work], budget=Budget(tokens=1000))
    await agent.reply("go")
    assert facts(agent) == why("the budget of 1,000 tokens cannot be checked: the model reported no usage")
    assert done == []
    agent.budget = Budget(steps=1)
    await agent.reply("again")
    assert facts(agent) == why("the budget of 1 step is used up: this would be step 2")


async def test_seconds_cut_what_runs() -> None:
    agent, model = agent_of([say("half"), wait(asyncio.Event())], budget=Budget(seconds=0.01))
    await agent.reply("go")
    assert facts(agent) == why("the budget of 0.01 s is used up")
    await assert_goes_on(agent, model)


# -- pauses, and who wins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loaded", [False, True])
async def test_after_a_pause_the_count_goes_on_where_it_was(*, loaded: bool) -> None:
    turn = [call("delete_rows", {"table": "t"}), used(600)]
    for budget, reason in [
        (Budget(steps=1), "this would be step 2"),
        (Budget(tokens=1000), "1,200 so far"),
        (Budget(tool_calls=1), "this would be call 2"),
    ]:
        agent, model = agent_of(turn, [call("work"), used(600)], "never", budget=budget)
        await agent.reply("go")
        if loaded:
            agent.load(agent.dump())
        (waits,) = agent.state.waiting()
        result = ev.ConfirmResult(confirmed=True, tool_call=waits)
        await agent.reply(ev.UserConfirmResultEvent(reply_id=agent.state.reply_id, confirm_results=(result,)))
        assert reason in str(facts(agent)["reason"])
        assert done == ["t"]
        done.clear()
        await assert_goes_on(agent, model)


async def test_a_runs_budget_wins_over_the_agents_and_an_empty_one_lifts_it() -> None:
    agent, _ = agent_of(call("work"), call("work"), call("work"), "ok", budget=Budget(steps=1))
    session = Session(agent, loop=asyncio.get_running_loop())
    assert (await session.run("go")).finished_reason == "interrupted"
    stopped = session.run(budget=Budget(tool_calls=1))
    await stopped
    assert stopped.status_facts()["stop"] == {
        **why("the budget of 1 tool call is used up: this would be call 2"),
        "stop_ms": stopped._stop_ms,
    }
    assert (await session.run(budget=Budget())).finished_reason == "completed"
    session.close()


async def test_a_resumed_run_has_the_same_budget_anew() -> None:
    agent, _ = agent_of(call("work"), call("work"), call("work"), "ok")
    session = Session(agent, loop=asyncio.get_running_loop())
    first = session.run("go", budget=Budget(steps=2))
    await first
    second = first.resume()
    await second
    assert (first.status, second.status, len(done)) == ("interrupted", "completed", 3)
    session.close()


# -- whose cancel ---------------------------------------------------------------------------------------------------


async def test_an_agent_run_in_a_task_that_was_cancelled_before_is_not_cut() -> None:
    agent, _ = agent_of(call("work"), "ok")
    said: list[ev.Event] = []

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await agent.run("go", said.append)

    task = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(last := said[-1], ev.ReplyEndEvent)
    assert last.finished_reason == "completed"
