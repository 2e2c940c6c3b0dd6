"""Long conversations: summarised when they must be, visibly, and never at the cost of what the person said or saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ToolCallPiece, UsageReport
from agent_widgets.budgets import Budget
from agent_widgets.compression import SUMMARY_PROMPT, CompressionConfig
from agent_widgets.decisions import StopLevel
from agent_widgets.errors import ConversationTooLongError, InputError, ModelError
from agent_widgets.export import to_html, to_text
from agent_widgets.messages import Msg
from agent_widgets.models.openai_chat import OpenAIChat
from agent_widgets.models.openai_responses import OpenAIResponses
from agent_widgets.models.scripted import ScriptedModel, Turn, call, fail, say, wait
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.shortening import LEFT_OUT_NOTICE
from agent_widgets.state import AgentState, Summary
from agent_widgets.tools import tool
from agent_widgets.wire import dump_state, load_state
from tests.models import responses_validator
from tests.models.chat_server import STOP, USAGE, ChatServer, chunk, refusal, stream
from tests.models.responses_events import COMPLETED, answer, text
from tests.validator import assert_valid

LONG = "tell me a long thing about tea " * 10
"""310 characters: by estimate 82 tokens with what a message costs."""
PAST = tuple(Msg("them", LONG, role) for role in ("user", "assistant") * 6)
"""978 tokens."""
NOTES = "They talked about tea."
AT_950 = CompressionConfig(trigger_tokens=950)


@tool
def read(page: int) -> str:
    """Read one page of the book, and give all of its text."""
    return f"page {page}: " + "word " * 100


@tool(confirm=True)
def burn(page: int) -> str:
    """Burn one page of the book, which cannot be undone."""
    return f"page {page} is gone"


def agent_of(*script: Turn, compression: CompressionConfig | None = AT_950, past: tuple[Msg, ...] = PAST) -> Agent:
    return Agent(ScriptedModel(script), tools=[read, burn], compression=compression, state=AgentState(context=past))


def asked(agent: Agent) -> list[ModelRequest]:
    """What the agent's scripted model was asked, each request found valid."""
    requests = cast("ScriptedModel", agent.model).requests
    for request in requests:
        assert_valid(cast("Any", request.messages))
    return requests


def is_summarising(request: ModelRequest) -> bool:
    return request.instructions == SUMMARY_PROMPT


def summarising(agent: Agent) -> list[int]:
    """The numbers of the calls that asked for a summary."""
    return [number for number, request in enumerate(asked(agent)) if is_summarising(request)]


def contents(request: ModelRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages]


async def started(
    agent: Agent, prompt: str | None = "and now?", budget: Budget | None = None, deadline: float | None = None
) -> Run:
    run = Run(agent, prompt, loop=asyncio.get_running_loop(), budget=budget, deadline=deadline)
    run.start()
    return run


async def carried(agent: Agent, prompt: str | None = "and now?", budget: Budget | None = None) -> Run:
    run = await started(agent, prompt, budget)
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    return run


# -- when -----------------------------------------------------------------------------------------------------------


async def test_what_is_below_the_trigger_is_sent_whole() -> None:
    agent = agent_of("fine", compression=CompressionConfig(trigger_tokens=5_000))
    await carried(agent)
    assert summarising(agent) == []
    assert contents(asked(agent)[0]) == [LONG] * 12 + ["and now?"]


async def test_above_the_trigger_older_messages_are_summarised_and_the_newest_kept() -> None:
    agent = agent_of(NOTES, "fine")
    run = await carried(agent)
    first, second = asked(agent)
    assert is_summarising(first)
    assert contents(first)[1].count(LONG) == 10
    assert not is_summarising(second)
    assert NOTES in contents(second)[0]
    assert contents(second)[1:] == [LONG, LONG, "and now?"]
    assert agent.state.summary == Summary(text=NOTES, messages=10)
    assert agent.state.context[:12] == PAST  # nothing is lost
    assert run.text == "fine"


async def test_as_much_of_the_newest_is_kept_as_was_asked_for() -> None:
    agent = agent_of(NOTES, "fine", compression=CompressionConfig(trigger_tokens=900, keep_recent_tokens=400))
    await carried(agent)
    assert contents(asked(agent)[1])[1:] == [*[LONG] * 4, "and now?"]
    assert agent.state.summary == Summary(text=NOTES, messages=8)


async def test_the_tokens_that_the_provider_reported_decide() -> None:
    """Short texts, of which the provider says that they are 1,500 tokens."""
    past = tuple(Msg("them", "a few words about tea", role) for role in ("user", "assistant") * 3)
    agent = agent_of([say("yes"), UsageReport(input_tokens=1_500, output_tokens=5)], NOTES, "fine", past=past)
    run = await carried(agent, "first")
    assert summarising(agent) == []
    run = await carried(agent, "second")
    assert summarising(agent) == [1]
    assert "estimated" not in run.transcript.notices[0]


async def test_without_a_report_it_is_an_estimate_and_says_so() -> None:
    agent = agent_of(NOTES, "fine")
    run = await carried(agent)
    (notice,) = run.transcript.notices
    assert notice == (
        "Older messages were summarised: 10 messages, about 815 tokens, became about 6 "
        "(estimated: the model has reported no tokens)."
    )


async def test_a_single_long_reply_is_summarised_while_it_goes_on() -> None:
    model = Reader(pages=40)
    agent = Agent(model, tools=[read], compression=CompressionConfig(trigger_tokens=1_000), max_steps=50)
    run = await carried(agent, "Read all forty pages.")
    assert (run.text, run.transcript.steps) == ("done", 41)
    assert len(model.summaries) >= 5
    assert max(model.sizes) <= 1_000
    for request in model.requests:
        assert_valid(cast("Any", request.messages))
        assert "Read all forty pages." in contents(request)
    assert len([b for b in agent.state.context[-1].content if b.type == "tool_result"]) == 40


async def test_what_must_be_kept_may_be_too_long_and_is_not_summarised_again_at_every_step() -> None:
    model = Reader(pages=30)
    agent = Agent(model, tools=[read], compression=CompressionConfig(trigger_tokens=4_000), max_steps=50)
    prompt = "Read them. " + LONG * 60
    run = await carried(agent, prompt)
    assert run.text == "done"
    assert min(model.sizes) > 4_000
    assert 0 < len(model.summaries) <= len(model.sizes) // 3
    assert all(prompt in contents(request) for request in model.requests)


async def test_a_huge_prompt_alone_is_sent_as_it_is() -> None:
    agent = agent_of("fine", past=())
    await carried(agent, LONG * 10)
    assert contents(asked(agent)[0]) == [LONG * 10]


class Reader:
    """Reads one page after the other, reports its usage as a server would, and writes notes when asked to."""

    name = "reader"

    def __init__(self, pages: int, notes: str = NOTES) -> None:
        self.pages, self.notes = pages, notes
        self.read = 0
        self.requests: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self.sizes: list[int] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        size = len(json.dumps(request.messages)) // 4
        await asyncio.sleep(0)
        if is_summarising(request):
            self.summaries.append(request)
            yield TextPiece(self.notes)
        else:
            self.requests.append(request)
            self.sizes.append(size)
            self.read += 1
            if self.read <= self.pages:
                arguments = json.dumps({"page": self.read})
                yield ToolCallPiece(index=0, call_id=f"c{self.read}", name="read", arguments=arguments)
            else:
                yield TextPiece("done")
        yield UsageReport(input_tokens=size, output_tokens=5)


# -- what the model sees --------------------------------------------------------------------------------------------


async def test_the_next_summary_takes_in_the_one_before() -> None:
    agent = agent_of(NOTES, "fine", "Tea, and more tea.", "fine")
    await carried(agent)
    agent.compression = CompressionConfig(trigger_tokens=100)
    await carried(agent, LONG)
    assert summarising(agent) == [0, 2]
    asked_for = contents(asked(agent)[2])[1]
    assert asked_for.startswith(f"<notes>\n{NOTES}\n</notes>")
    assert asked_for.count(LONG) == 2  # what came since; of the ten messages before only the notes are read again
    assert agent.state.summary == Summary(text="Tea, and more tea.", messages=14)
    assert "Tea, and more tea." in contents(asked(agent)[3])[0]


async def test_the_summarising_call_offers_no_tools_and_its_calls_and_thinking_are_not_listened_to() -> None:
    agent = agent_of([say(NOTES), call("burn", {"page": 1})], "fine")
    run = await carried(agent)
    assert asked(agent)[0].tools == ()
    assert not any(isinstance(event, ev.ToolCallStartEvent) for event in run.events)
    assert agent.state.summary is not None


async def test_another_model_can_summarise() -> None:
    other = ScriptedModel([NOTES], name="small")
    agent = agent_of("fine", compression=CompressionConfig(trigger_tokens=950, model=other))
    run = await carried(agent)
    assert len(other.requests) == 1
    names = [event.model_name for event in run.events if isinstance(event, ev.ModelCallStartEvent)]
    assert names == ["small", "scripted"]
    assert run.transcript.model == "scripted"


async def test_a_summariser_may_be_given_by_name_and_is_looked_up_where_the_model_is() -> None:
    async with ChatServer(stream(chunk(NOTES), STOP, USAGE), stream(chunk("fine"), STOP, USAGE)) as server:
        compression = replace(AT_950, model="small")
        agent = Agent("large", base_url=server.base_url, compression=compression, state=AgentState(context=PAST))
        assert (await carried(agent)).text == "fine"
    assert [body["model"] for body in server.bodies] == ["small", "large"]


async def test_a_history_that_was_loaded_long_is_summarised_in_calls_that_can_be_read() -> None:
    past = tuple(Msg("them", f"{number}: {LONG}", role) for number in range(25) for role in ("user", "assistant"))
    agent = agent_of("First notes.", "Second notes.", "Third notes.", "Fourth notes.", "fine", past=past)
    run = await carried(agent)
    assert run.text == "fine"
    reads = [contents(request)[1] for request in asked(agent)[:4]]
    assert max(map(len, reads)) <= 950 * 5 + 200
    assert "".join(reads).count(LONG) == 48  # each is read once
    assert [reads[number].split("\n")[1] for number in (1, 2, 3)] == ["First notes.", "Second notes.", "Third notes."]
    assert agent.state.summary == Summary(text="Fourth notes.", messages=48)
    assert len(run.transcript.notices) == 4


async def test_what_an_image_or_a_long_result_holds_is_not_read_for_the_summary() -> None:
    @tool
    def dump() -> str:
        """Give a whole file, with its beginning and its end."""
        return "first " + "x" * 50_000 + " last"

    model = ScriptedModel([[call("dump", {})], [say("it"), UsageReport(input_tokens=12_500, output_tokens=1)], NOTES, "fine"])
    agent = Agent(model, tools=[dump], compression=CompressionConfig(trigger_tokens=13_000))
    await carried(agent, "dump it")
    agent.compression = CompressionConfig(trigger_tokens=500)
    await carried(agent)
    asked_for = next(contents(request)[1] for request in model.requests if is_summarising(request))
    assert len(asked_for) < 5_000
    assert "first xxx" in asked_for
    assert "characters are left out here] xxx" in asked_for


async def test_a_summary_in_the_state_is_used_also_by_an_agent_that_makes_none() -> None:
    agent = agent_of("fine", compression=None, past=())
    agent.load(dump_state(AgentState(context=PAST, summary=Summary(text=NOTES, messages=10))))
    await carried(agent)
    assert contents(asked(agent)[0])[1:] == [LONG, LONG, "and now?"]
    assert NOTES in contents(asked(agent)[0])[0]


# -- in the log -----------------------------------------------------------------------------------------------------


async def test_the_call_is_in_the_log_with_its_usage_and_is_no_step_and_no_text() -> None:
    agent = agent_of([say(NOTES), UsageReport(input_tokens=950, output_tokens=6)], "fine")
    run = await carried(agent)
    kinds = [event.type for event in run.events]
    assert kinds[:6] == ["REPLY_START", "MODEL_CALL_START", "MODEL_CALL_END", "CUSTOM", "CUSTOM", "MODEL_CALL_START"]
    begins = run.events[1]
    assert isinstance(begins, ev.ModelCallStartEvent)
    assert begins.metadata == {"purpose": "compression"}
    assert run.transcript.steps == 1
    assert run.reply.usage is not None
    assert run.reply.usage.input_tokens > 950
    assert (run.text, agent.state.context[-1].text) == ("fine", "fine")
    assert NOTES not in to_text(run.view()) + to_html([run.view()], "x")


async def test_a_budget_counts_its_tokens_but_not_as_a_step() -> None:
    agent = agent_of([say(NOTES), UsageReport(input_tokens=950, output_tokens=6)], "never said", "fine")
    run = await carried(agent, budget=Budget(tokens=900, steps=1))
    assert run.status == "interrupted"
    assert "900 tokens is used up: 956" in str(run.reply.metadata["reason"])
    assert agent.state.summary is not None  # it is paid for
    assert [event.type for event in run.events].count("MODEL_CALL_START") == 1
    assert len(asked(agent)) == 1
    assert (await carried(agent, budget=Budget(steps=1))).status == "completed"


# -- stopping -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["now", "step"])
async def test_a_stop_cuts_it_at_once_and_nothing_has_changed(level: StopLevel) -> None:
    held = asyncio.Event()
    agent = agent_of([say(["They ", "talked"]), wait(held)], NOTES, "fine")
    run = await started(agent)
    while not asked(agent):
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    run.stop(level, "enough")
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    assert run.status == "interrupted"
    assert (run.reply.metadata["when"], run.reply.metadata["reason"]) == (level, "enough")
    assert cast("float", run.reply.metadata["stop_ms"]) < 500
    assert [event.type for event in run.events] == ["REPLY_START", "MODEL_CALL_START", "MODEL_CALL_END", "REPLY_END"]
    assert agent.state.summary is None
    assert agent.state.context[:12] == PAST
    assert agent.state.context[12].text == "and now?"
    assert agent.state.check() == ()
    assert (await carried(agent, "next")).text == "fine"
    assert summarising(agent) == [0, 1]
    assert contents(asked(agent)[2])[-2:] == ["and now?", "next"]


async def test_after_a_stop_it_goes_on_without_a_new_message_and_keeps_the_interrupted_prompt() -> None:
    """AgentScope 1 summarises away the very request that was interrupted."""
    agent = agent_of([say("They"), wait(asyncio.Event())], NOTES, "fine")
    run = await started(agent, "my request")
    while not asked(agent):
        await asyncio.sleep(0)
    run.stop()
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    assert (await carried(agent, None)).text == "fine"
    assert contents(asked(agent)[2])[-1] == "my request"


async def test_a_stop_closes_the_http_stream() -> None:
    async with ChatServer(
        stream(chunk("They"), end="hold"), stream(chunk(NOTES), STOP, USAGE), stream(chunk("ok"), STOP, USAGE)
    ) as server:
        model = OpenAIChat("fake", base_url=server.base_url)
        agent = Agent(model, compression=AT_950, state=AgentState(context=PAST))
        run = await started(agent)
        await server.holding.wait()
        run.stop()
        await asyncio.wait([asyncio.wrap_future(run.ended)])
        await asyncio.wait_for(server.left.wait(), 2)
        assert (await carried(agent)).text == "ok"
        await model.aclose()


@pytest.mark.parametrize("limits", [{"deadline": 0.05}, {"budget": Budget(seconds=0.05)}])
async def test_a_deadline_cuts_it(limits: dict[str, Any]) -> None:
    agent = agent_of([say("They"), wait(asyncio.Event())])
    run = await started(agent, **limits)
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    assert run.status == "interrupted"
    assert run.reply.metadata["source"] in ("deadline", "budget")
    assert agent.state.summary is None


async def test_a_state_saved_at_any_event_goes_on_with_or_without_the_summary() -> None:
    agent = agent_of(NOTES, [call("read", {"page": 1})], "fine")
    run = Run(agent, "and now?", loop=asyncio.get_running_loop())
    saved: list[Any] = []

    def save(run: Run, event: ev.Event | None) -> None:
        saved.append(json.loads(json.dumps(agent.dump())))

    run.listen(save)
    run.start()
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    seen: set[bool] = set()
    for state in saved:
        loaded = load_state(state)
        assert loaded.repair().check() == ()
        assert loaded.repair().summary == loaded.summary
        seen.add(loaded.summary is None)
        other = agent_of(*([] if loaded.summary else [NOTES]), "good", past=())
        other.load(state)
        assert (await carried(other, "go on")).text == "good"
    assert seen == {True, False}


# -- when no summary can be had -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (fail("the summariser is away"), "the summariser is away"),
        ([say("They"), fail("the line broke")], "the line broke"),
        (fail(ConversationTooLongError("scripted", "too long for the summariser.")), "too long for the summariser"),
        (say(""), "gave no summary"),
        ([call("read", {"page": 1})], "gave no summary"),
        (say("long " * 1_000), "longer than what it would replace"),
    ],
)
async def test_the_oldest_are_left_out_of_the_request_and_the_history_keeps_them(turn: Turn, why: str) -> None:
    agent = agent_of(turn, "fine")
    run = await carried(agent)
    assert run.text == "fine"
    assert agent.state.summary is None
    assert agent.state.context[:12] == PAST
    sent = contents(asked(agent)[1])
    assert sent[0].startswith("[The older part of this conversation is left out here")
    assert sent[1:] == [LONG, LONG, "and now?"]
    (notice,) = run.transcript.notices
    assert notice.startswith(LEFT_OUT_NOTICE)
    assert why in notice
    assert "The oldest 10 messages are left out" in notice


async def test_it_is_said_once_in_a_reply_and_tried_again_in_the_next() -> None:
    model = Reader(pages=12, notes="")
    agent = Agent(model, tools=[read], compression=CompressionConfig(trigger_tokens=600), max_steps=50)
    run = await carried(agent, "Read them all.")
    assert run.text == "done"
    assert len(model.summaries) == 1
    assert len(run.transcript.notices) == 1
    assert max(model.sizes) <= 600
    for request in model.requests:
        assert_valid(cast("Any", request.messages))
    model.notes = NOTES
    await carried(agent, "and now?")
    assert len(model.summaries) > 1
    assert agent.state.summary is not None


async def test_it_is_said_once_also_in_a_reply_that_pauses() -> None:
    report = UsageReport(input_tokens=500, output_tokens=3)
    agent = agent_of(fail("away"), [call("burn", {"page": 1}), report], fail("away"), "fine")
    run = await started(agent, "burn it")
    while run.status != "paused":
        await asyncio.sleep(0)
    assert agent.state.waiting()
    run.approve()
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    assert (run.text, len(run.transcript.notices)) == ("fine", 1)


async def test_a_summariser_that_is_busy_is_asked_again_and_a_stop_cuts_the_wait() -> None:
    busy = ModelError("scripted", "too many requests.", is_temporary=True, retry_after_s=0)
    agent = agent_of(fail(busy), NOTES, "fine")
    run = await carried(agent)
    assert run.transcript.notices[0].startswith("too many requests. Trying again in 0 s")
    assert agent.state.summary is not None

    agent = agent_of(fail(ModelError("scripted", "too many.", is_temporary=True, retry_after_s=50)), NOTES, "fine")
    run = await started(agent)
    while not run.transcript.notices:
        await asyncio.sleep(0)
    run.stop("step")
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    assert (run.status, agent.state.summary) == ("interrupted", None)
    assert (await carried(agent)).text == "fine"


# -- what the provider refuses as too long --------------------------------------------------------------------------


TOO_LONG = fail(ConversationTooLongError("scripted", "the conversation is too long for this model."))


async def test_by_default_it_is_summarised_when_the_provider_refuses_it_and_asked_once_more() -> None:
    agent = Agent(ScriptedModel([TOO_LONG, NOTES, "fine"]), state=AgentState(context=PAST))
    run = await carried(agent)
    assert run.text == "fine"
    assert len(asked(agent)[2].messages) < len(asked(agent)[0].messages)
    calls = [event.metadata for event in run.events if isinstance(event, ev.ModelCallStartEvent)]
    assert calls == [{}, {"purpose": "compression"}, {"purpose": "again"}]
    ends = [event.finished_reason for event in run.events if isinstance(event, ev.ModelCallEndEvent)]
    assert ends == ["interrupted", "completed", "completed"]
    assert (run.transcript.steps, len(run.transcript.notices)) == (1, 1)


async def test_a_second_refusal_ends_the_reply_with_the_error() -> None:
    agent = Agent(ScriptedModel([TOO_LONG, NOTES, TOO_LONG, "fine"]), state=AgentState(context=PAST))
    run = await carried(agent)
    assert (run.status, len(asked(agent))) == ("error", 3)
    assert isinstance(run.error, ConversationTooLongError)
    assert agent.state.summary is not None
    assert (await carried(agent, None)).text == "fine"


@pytest.mark.parametrize(("compression", "past"), [(CompressionConfig(), ()), (None, PAST)])
async def test_where_nothing_can_be_shortened_the_refusal_is_the_error(
    compression: CompressionConfig | None, past: tuple[Msg, ...]
) -> None:
    agent = agent_of(TOO_LONG, compression=compression, past=past)
    run = await carried(agent)
    assert (run.status, len(asked(agent))) == ("error", 1)
    assert [event.type for event in run.events].count("MODEL_CALL_END") == 1


async def test_a_refusal_with_no_summary_to_be_had_leaves_the_oldest_out() -> None:
    agent = Agent(ScriptedModel([TOO_LONG, fail("away"), "fine"]), state=AgentState(context=PAST))
    run = await carried(agent)
    assert run.text == "fine"
    assert "left out" in contents(asked(agent)[2])[0]


def refused_by_chat_completions() -> ChatServer:
    error = {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}
    return ChatServer(refusal(400, {"error": error}), stream(chunk(NOTES), STOP, USAGE), stream(chunk("fine"), STOP, USAGE))


def refused_by_responses() -> ChatServer:
    error = {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}
    return ChatServer(refusal(400, {"error": error}), answer(text(NOTES), COMPLETED), answer(text("fine"), COMPLETED))


async def test_the_refusal_of_a_chat_completions_server_is_recognised() -> None:
    async with refused_by_chat_completions() as server:
        model = OpenAIChat("fake", base_url=server.base_url)
        run = await carried(Agent(model, state=AgentState(context=PAST)))
        await model.aclose()
    assert run.text == "fine"
    for body in server.bodies:
        assert_valid(body["messages"])
    assert NOTES in server.bodies[2]["messages"][0]["content"]


async def test_the_refusal_of_a_responses_server_is_recognised_and_what_is_sent_then_is_valid() -> None:
    async with refused_by_responses() as server:
        model = OpenAIResponses("fake", base_url=server.base_url)
        run = await carried(Agent(model, state=AgentState(context=PAST)))
        await model.aclose()
    assert run.text == "fine"
    for body in server.bodies:
        responses_validator.assert_valid(body["input"])
    assert server.bodies[1]["instructions"] == SUMMARY_PROMPT
    assert NOTES in server.bodies[2]["input"][0]["content"]


# -- the state ------------------------------------------------------------------------------------------------------


async def test_a_fresh_conversation_has_no_summary() -> None:
    agent = agent_of(NOTES, "fine", "hello")
    session = Session(agent, loop=asyncio.get_running_loop())
    await session.run("and now?")
    assert agent.state.summary is not None
    await session.run("who are you?", reset=True)
    assert agent.state.summary is None
    assert contents(asked(agent)[2]) == ["who are you?"]
    session.close()


async def test_a_call_that_waits_is_never_summarised() -> None:
    report = UsageReport(input_tokens=900, output_tokens=3)
    pages: list[Turn] = [[call("read", {"page": page})] for page in range(3)]
    agent = agent_of(*pages, [call("read", {"page": 3}), call("burn", {"page": 9}), report], NOTES, "fine", past=())
    run = await started(agent, "read and burn")
    while run.status != "paused":
        await asyncio.sleep(0)
    saved = json.loads(json.dumps(agent.dump()))
    run.approve()
    await asyncio.wait([asyncio.wrap_future(run.ended)])
    assert run.text == "fine"
    sent = asked(agent)[-1].messages
    assert [message["role"] for message in sent] == ["user", "user", "assistant", "tool", "tool"]
    other = agent_of(past=())
    other.load(saved)
    assert [waits.name for waits in other.state.waiting()] == ["burn"]


# -- configuration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CompressionConfig(trigger_tokens=0), "trigger_tokens is 0.*above 0, or None"),
        (lambda: CompressionConfig(trigger_tokens=cast("Any", 1.5)), r"trigger_tokens is 1\.5"),
        (lambda: CompressionConfig(keep_recent_tokens=cast("Any", True)), "keep_recent_tokens is True"),
        (lambda: CompressionConfig(max_summary_tokens=cast("Any", None)), "max_summary_tokens is None.*above 0\\.$"),
        (lambda: CompressionConfig(trigger_tokens=100, keep_recent_tokens=51), "half of trigger_tokens"),
        (lambda: CompressionConfig(prompt=" "), "the prompt is empty"),
        (lambda: Agent("demo", compression=cast("Any", 5_000)), "compression is 5000.*CompressionConfig"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_give(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


async def test_a_summary_is_cut_at_its_size() -> None:
    agent = agent_of(say("tea " * 100), "fine", compression=replace(AT_950, max_summary_tokens=10))
    await carried(agent)
    assert agent.state.summary is not None
    assert agent.state.summary.text == "tea " * 10


async def test_the_prompt_of_the_summariser_can_be_replaced() -> None:
    agent = agent_of(NOTES, "fine", compression=replace(AT_950, prompt="Make a haiku of it."))
    await carried(agent)
    assert contents(asked(agent)[0])[0] == "Make a haiku of it."


# -- for a long time ------------------------------------------------------------------------------------------------


class Talker:
    """Talks at length, stalls where it is told to, and writes notes that grow with what it is given."""

    name = "talker"

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.summaries = 0
        self.stalls = False
        self.stalling = asyncio.Event()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        assert_valid(cast("Any", request.messages))
        size = len(json.dumps(request.messages)) // 4
        summarises = is_summarising(request)
        yield TextPiece("Notes on this. " if summarises else "I say ")
        if self.stalls and summarises == (self.summaries % 2 == 1):
            self.stalling.set()
            await asyncio.Event().wait()
        if summarises:
            self.summaries += 1
            yield TextPiece("They went on about tea. " * 20)
        else:
            self.sizes.append(size)
            yield TextPiece("something long about tea. " * 20)
        yield UsageReport(input_tokens=size, output_tokens=130)


async def test_two_hundred_prompts_with_a_stop_in_each_tenth_go_on_in_bounded_requests() -> None:
    model = Talker()
    agent = Agent(model, compression=CompressionConfig(trigger_tokens=2_000))
    stopped = 0
    for number in range(200):
        model.stalls = number % 10 == 9
        model.stalling.clear()
        run = await started(agent, f"prompt {number}: {LONG}")
        over = asyncio.ensure_future(asyncio.wait([asyncio.wrap_future(run.ended)]))
        stalled = asyncio.ensure_future(model.stalling.wait())
        await asyncio.wait([over, stalled], return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            run.stop("now")
            await over
            stopped += 1
            assert run.status == "interrupted"
        else:
            assert run.status == "completed"
        stalled.cancel()
        assert agent.state.check() == ()
    assert stopped >= 10
    assert max(model.sizes) <= 2_000
    assert 20 <= model.summaries <= 60
    assert len(agent.state.context) == 400
    assert agent.state.context[0].text.startswith("prompt 0:")
