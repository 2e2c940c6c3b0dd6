"""Our wire against the real AgentScope 2.0.11: its models read our events, ours read its own, and both read them again."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.errors import ModelError
from agent_widgets.messages import ErrorInfo, JsonObject, TextBlock, ToolCallBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, fail
from agent_widgets.runs import Run
from agent_widgets.state import AgentState
from agent_widgets.transcript import fold
from agent_widgets.wire import dump_event, dump_msg, load_event, load_events, load_msg
from tests.test_wire import EVERY_EVENT, MESSAGE

THERE = '''
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
from pydantic import TypeAdapter
import agentscope.event as events
from agentscope.agent import Agent, InjectionConfig
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock, ThinkingBlock, ToolCallBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool, Toolkit

union = TypeAdapter(events.AgentEvent)

def accept(values):
    """Read them with their own class and with the union; give class name and dump."""
    own = [getattr(events, value["class"]).model_validate(value["event"]) for value in values]
    read = list(zip(own, [union.validate_python(value["event"]) for value in values]))
    assert all(type(one) is type(two) for one, two in read), [(type(a), type(b)) for a, b in read]
    return [event.model_dump(mode="json") for event, _ in read]

def make(values):
    """Objects made here, with AgentScope's own ids, times and defaults."""
    own = {"id", "created_at", "metadata", "type"}
    made = [getattr(events, v["class"])(**{k: x for k, x in v["event"].items() if k not in own}) for v in values]
    return [event.model_dump(mode="json") for event in made]

def messages(values):
    return [Msg.model_validate(value).model_dump(mode="json") for value in values]

class Scripted(ChatModelBase):
    def __init__(self, *turns):
        super().__init__(CredentialBase(), "scripted", self.Parameters(), stream=True, max_retries=0)
        self.turns = list(turns)
        self.formatter = OpenAIChatFormatter()
    async def _call_api(self, model_name, messages, tools=None, tool_choice=None, **kwargs):
        turn = self.turns.pop(0)
        async def stream():
            for block in turn:
                await asyncio.sleep(0)
                if block == "wait":
                    await asyncio.Event().wait()
                yield ChatResponse(content=[block], is_last=False)
        return stream()

def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a (int): one
        b (int): the other
    """
    return str(a + b)

ALLOW = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="")

def agent(*turns, **options):
    toolkit = Toolkit(tools=[FunctionTool(add, **options)])
    quiet = InjectionConfig(inject_runtime_state=False)
    return Agent("bob", "Be brief.", Scripted(*turns), toolkit=toolkit, injection_config=quiet)

CALL = [TextBlock(text="I ", id="t"), TextBlock(text="add.", id="t"), ToolCallBlock(id="c1", name="add", input='{"a": 1'),
        ToolCallBlock(id="c1", name="add", input=', "b": 2}')]

async def heard(stream, seen, until=None):
    async for event in stream:
        seen.append(event.model_dump(mode="json"))
        if until and event.type == until:
            return

async def stories():
    told = {}
    async def tell(name, bob, *inputs, cancel_at=None):
        seen = []
        for given in inputs:
            given = given(bob) if callable(given) else given
            task = asyncio.create_task(heard(bob.reply_stream(given), seen))
            while cancel_at and not any(event["type"] == cancel_at for event in seen):
                await asyncio.sleep(0)
            if cancel_at:
                task.cancel()
            await asyncio.wait([task])
        told[name] = {"events": seen, "context": [m.model_dump(mode="json") for m in bob.state.context]}
    ask = UserMsg("user", "1 + 2?")
    done = [TextBlock(text="It is 3.", id="u")]
    think = [ThinkingBlock(thinking="hm", id="th")]
    def confirm(yes):
        def decision(bob):
            call = next(b for b in bob.state.context[-1].content if b.type == "tool_call")
            result = events.ConfirmResult(confirmed=yes, tool_call=call.model_copy(deep=True), rules=call.suggested_rules)
            return events.UserConfirmResultEvent(reply_id=bob.state.reply_id, confirm_results=[result])
        return decision
    def interrupt(bob):
        return events.UserInterruptEvent(reply_id=bob.state.reply_id)
    await tell("tool", agent(think + CALL, done, permission=ALLOW), ask)
    await tell("approved", agent(CALL, done), ask, confirm(True))
    await tell("denied", agent(CALL, done), ask, confirm(False))
    await tell("interrupted pause", agent(CALL), ask, interrupt)
    await tell("cancelled text", agent([TextBlock(text="half ", id="t"), "wait"]), ask, cancel_at="TEXT_BLOCK_DELTA")
    await tell("cancelled call", agent(CALL[:3] + ["wait"]), ask, cancel_at="TOOL_CALL_DELTA")
    return told

for line in sys.stdin:
    asked = json.loads(line)
    try:
        name = asked["do"]
        answer = {"value": asyncio.run(stories()) if name == "stories" else globals()[name](asked["values"])}
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print("ANSWER " + json.dumps(answer), flush=True)
'''


class AgentScope:
    """The other side, in its own interpreter."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen([python, "-c", THERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, do: str, values: object = None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "values": values}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                answer = json.loads(line.removeprefix("ANSWER "))
                assert "error" not in answer, answer["error"]
                return answer["value"]
        raise AssertionError("AgentScope's side has ended")

    def close(self) -> None:
        self._process.communicate(timeout=10)


@pytest.fixture(scope="module")
def agentscope(agentscope_python: Path) -> Iterator[AgentScope]:
    other = AgentScope(agentscope_python)
    yield other
    other.close()


@pytest.fixture(scope="module")
def stories(agentscope: AgentScope) -> dict[str, Any]:
    """What real agents of AgentScope said: events and context, by the story's name."""
    return agentscope("stories")


def named(events: tuple[ev.Event, ...]) -> list[JsonObject]:
    return [{"class": type(event).__name__, "event": dump_event(event)} for event in events]


CATEGORY = ErrorInfo(type="upstream", message="m")  # AgentScope's own categories are the only types it reads
OURS = tuple(replace(event, error=CATEGORY) if isinstance(event, ev.ReplyEndEvent) else event for event in EVERY_EVENT)
OUR_MESSAGE = replace(MESSAGE, error=CATEGORY)


def as_read_there(event: ev.Event) -> ev.Event:
    """What AgentScope keeps of ours: all but the reason of a decision."""
    if isinstance(event, ev.UserConfirmResultEvent):
        return replace(event, confirm_results=tuple(replace(result, reason="") for result in event.confirm_results))
    return event


def test_agentscope_reads_every_event_of_ours_and_loses_nothing(agentscope: AgentScope) -> None:
    there = agentscope("accept", named(OURS))
    assert [load_event(value) for value in there] == [as_read_there(event) for event in OURS]


def test_our_field_names_are_exactly_agentscopes(agentscope: AgentScope) -> None:
    there = agentscope("accept", named(OURS))
    assert [set(value) for value in there] == [set(dump_event(event)) for event in OURS]


def test_we_read_every_event_that_agentscope_makes_and_it_reads_ours_of_it(agentscope: AgentScope) -> None:
    made = agentscope("make", named(OURS))
    ours = load_events(made)
    assert [type(event) for event in ours] == [type(event) for event in OURS]
    again = agentscope("accept", named(ours))
    assert again == made


async def test_agentscope_reads_the_end_of_a_reply_of_ours_that_failed(agentscope: AgentScope) -> None:
    run = Run(Agent(ScriptedModel([fail("gone")])), "go", loop=asyncio.get_running_loop())
    run.start()
    with pytest.raises(ModelError):
        await run
    agentscope("accept", named(run.events))


def test_messages_go_both_ways(agentscope: AgentScope) -> None:
    (there,) = agentscope("messages", [dump_msg(OUR_MESSAGE)])
    ours = load_msg(there)
    assert ours.usage is not None
    assert MESSAGE.usage is not None
    assert ours == replace(OUR_MESSAGE, usage=replace(MESSAGE.usage, unknown_calls=0))  # a count of ours
    assert agentscope("messages", [dump_msg(ours)]) == [there]


NAMES = ["tool", "approved", "denied", "interrupted pause", "cancelled text", "cancelled call"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_real_agent_says_is_read_and_read_back(agentscope: AgentScope, stories: dict[str, Any], name: str) -> None:
    events = load_events(stories[name]["events"])
    assert agentscope("accept", named(events)) == stories[name]["events"]
    assert isinstance(events[0], ev.ReplyStartEvent)
    assert isinstance(events[-1], ev.ReplyEndEvent)
    context = [load_msg(message) for message in stories[name]["context"]]
    assert agentscope("messages", [dump_msg(message) for message in context]) == stories[name]["context"]


@pytest.mark.parametrize(
    ("name", "text", "result", "ends"),
    [
        ("tool", "I add.\nIt is 3.", ("success", "3"), "completed"),
        ("approved", "I add.\nIt is 3.", ("success", "3"), "completed"),
        (
            "denied",
            "I add.\nIt is 3.",
            ("denied", '<system-reminder>The execution of tool "add" is denied by user!</system-reminder>'),
            "completed",
        ),
        (
            "interrupted pause",
            "I add.",
            ("interrupted", "<system-reminder>The tool call has been interrupted by the user.</system-reminder>"),
            "interrupted",
        ),
        ("cancelled text", "half ", None, "interrupted"),
        (
            "cancelled call",
            "I add.",
            ("interrupted", "<system-reminder>The tool call has been interrupted by the user.</system-reminder>"),
            "interrupted",
        ),
    ],
)
def test_what_a_real_agent_says_folds_to_what_happened(
    stories: dict[str, Any], name: str, text: str, result: tuple[str, str] | None, ends: str
) -> None:
    message = fold(None, *load_events(stories[name]["events"])).message
    assert (message.name, message.text, message.finished_reason) == ("bob", text, ends)
    found = [(block.state, block.text()) for block in message.content if isinstance(block, ToolResultBlock)]
    assert found == ([] if result is None else [result])
    assert all(block.finished_at for block in message.content)


@pytest.mark.parametrize("name", NAMES)
def test_a_context_of_agentscope_is_mended_to_a_valid_state(stories: dict[str, Any], name: str) -> None:
    context = tuple(load_msg(message) for message in stories[name]["context"])
    repaired = AgentState(context=context).repair()
    assert repaired.check() == ()
    if name == "cancelled call":
        (call,) = [block for block in repaired.context[-1].content if isinstance(block, ToolCallBlock)]
        assert call.input == '{"a":1}'
    else:
        assert [m.text for m in repaired.context] == [m.text for m in context]
        assert [b for m in repaired.context for b in m.content if isinstance(b, TextBlock)] == [
            b for m in context for b in m.content if isinstance(b, TextBlock)
        ]


def test_the_texts_of_agentscope_are_ours(stories: dict[str, Any]) -> None:
    from agent_widgets.results import DENIED_TEXT
    from agent_widgets.state import INTERRUPTED_TEXT

    def delta(name: str) -> str:
        return next(cast("str", event["delta"]) for event in stories[name]["events"] if event["type"] == "TOOL_RESULT_TEXT_DELTA")

    assert delta("interrupted pause") == INTERRUPTED_TEXT
    assert delta("denied") == DENIED_TEXT.format(name="add")
