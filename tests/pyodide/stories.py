"""What must work without threads: each story is a coroutine that is given a notebook, and asserts."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.pyodide.host import SETUP, Host

Story = Callable[[Host], Awaitable[None]]
STORIES: list[Story] = []


def story(told: Story) -> Story:
    """One of them."""
    STORIES.append(told)
    return told


@story
async def a_card_streams_while_its_cell_waits(host: Host) -> None:
    await host.cell("agent = aw.Agent(ScriptedModel([[say(['one ', 'two ', 'three'])]]))")
    await host.cell("run = aw.chat(agent, 'go'); reply = await run")
    assert host.value("reply.text") == host.text() == "one two three"
    assert host.states()[-1] == "completed"
    await host.until(lambda: "one two three" in host.displayed[-1]["text/html"])  # the static twin


@story
async def it_streams_while_no_cell_waits(host: Host) -> None:
    await host.cell("run = aw.chat(aw.Agent(ScriptedModel(['in the background'])), 'go')")
    await host.until_state("completed")
    assert host.text() == "in the background"


@story
async def the_card_says_once_what_one_loop_costs(host: Host) -> None:
    await host.cell("agent = aw.Agent(ScriptedModel(['a', 'b']))")
    notes = [await host.cell(f"run = aw.chat(agent, '{prompt}'); await run; run.note") for prompt in "ab"]
    assert "this agent and its Stop stand still" in notes[0]
    assert notes[1] == ""


@story
async def stop_is_heard_while_a_cell_waits_and_the_next_one_goes_on(host: Host) -> None:
    await host.cell("agent = aw.Agent(slow('went on'))")
    cell = host.start("run = aw.chat(agent, 'go'); await run")
    await host.until(lambda: host.cards and host.text())
    host.click("stop", after="now")
    await cell
    assert host.states()[-1] == host.value("run.status") == "interrupted"
    assert host.value("agent.state.check()") == ()
    await host.cell("reply = await aw.chat(agent, 'go on')")
    assert host.value("reply.text") == "went on"


@story
async def a_stopped_run_is_resumed(host: Host) -> None:
    await host.cell("agent = aw.Agent(slow('resumed'))")
    cell = host.start("run = aw.chat(agent, 'go'); await run")
    await host.until(lambda: host.cards and host.text())
    host.click("stop", after="now")
    await cell
    host.click("resume")
    await host.until_state("completed")
    assert host.text().endswith("resumed")


@story
async def a_call_is_denied_and_the_model_reads_why(host: Host) -> None:
    await host.cell("model = ScriptedModel([[call('delete_rows', {'table': 'orders'})], [say('then not')]])")
    cell = host.start("reply = await aw.chat(aw.Agent(model, tools=[delete_rows]), 'go')")
    await host.until(lambda: host.cards)
    await host.decide("deny", "not on Mondays")
    await cell
    assert host.value("reply.text") == "then not"
    assert "not on Mondays" in json.dumps(host.value("model.requests[-1].messages"))


@story
async def a_call_is_approved_and_runs(host: Host) -> None:
    await host.cell("model = ScriptedModel([[call('delete_rows', {'table': 'orders'})], [say('done')]])")
    cell = host.start("reply = await aw.chat(aw.Agent(model, tools=[delete_rows]), 'go')")
    await host.until(lambda: host.cards)
    await host.decide("approve")
    await cell
    assert "deleted orders" in json.dumps(host.value("model.requests[-1].messages"))


@story
async def an_outside_result_is_given_on_the_card(host: Host) -> None:
    await host.cell("""
@aw.tool(external=True)
def ask_person(question: str) -> str:
    "Ask the person QUESTION."
agent = aw.Agent(ScriptedModel([[call('ask_person', {'question': 'Why?'}, id='call_1')], [say('I see')]]), tools=[ask_person])
""")
    cell = host.start("reply = await aw.chat(agent, 'go')")
    await host.until_state("paused")
    host.click("answer", call_id="call_1", text="because")
    await cell
    assert host.value("reply.text") == "I see"


@story
async def sync_tools_run_where_the_loop_is(host: Host) -> None:
    await host.cell("""
@aw.tool
def double(number: int) -> int:
    "Give NUMBER times two."
    print("doubling")
    return 2 * number
@aw.tool
def count(to: int) -> str:
    "Count up TO a number."
    for number in range(to):
        yield f"{number} "
    return "end"
model = ScriptedModel([[call('double', {'number': 21}), call('count', {'to': 3})], [say('done')]])
reply = await aw.chat(aw.Agent(model, tools=[double, count]), 'go')
""")
    told = [message["content"] for message in host.value("model.requests[-1].messages") if message["role"] == "tool"]
    assert told == ["42", "0 1 2 end"], told
    events = [event for message in host.messages("events") for event in message["events"]]
    assert "doubling" in json.dumps([event for event in events if event["type"] == "CUSTOM"])  # printed on its card


@story
async def a_failing_sync_tool_is_a_result(host: Host) -> None:
    await host.cell("""
@aw.tool
def fails() -> int:
    "Fail for sure."
    raise KeyError("gone")
model = ScriptedModel([[call('fails')], [say('a pity')]])
reply = await aw.chat(aw.Agent(model, tools=[fails]), 'go')
""")
    assert "KeyError: 'gone'" in json.dumps(host.value("model.requests[-1].messages"))
    assert host.value("reply.text") == "a pity"


@story
async def two_sessions_stream_side_by_side(host: Host) -> None:
    await host.cell("one, two = (aw.chat(aw.Agent(slow('x')), 'go') for _ in range(2))")
    await host.until(lambda: len(host.cards) == 2 and host.text(0) and host.text(1))
    host.click("stop", card=0, after="now")
    await host.until_state("interrupted", 0)
    assert host.value("two.status") == "running"
    host.click("stop", card=1, after="now")
    await host.until_state("interrupted", 1)


@story
async def a_state_is_saved_and_loaded(host: Host) -> None:
    path = Path(tempfile.mkdtemp()) / "one.json"
    await host.cell("agent = aw.Agent(ScriptedModel(['remembered']), name='saved'); await aw.chat(agent, 'go')")
    await host.cell(f"aw.sessions()[-1].save({str(path)!r}); fresh = aw.Agent(ScriptedModel(['and on']))")
    await host.cell(f"session = aw.Session.load({str(path)!r}, fresh)")
    await host.cell("reply = await aw.chat(fresh, 'next')")
    assert [message.text for message in host.value("fresh.state.context")] == ["go", "remembered", "next", "and on"]


@story
async def a_stored_session_is_opened_again(host: Host) -> None:
    folder = str(Path(tempfile.mkdtemp()) / "kept.session")
    await host.cell("first, second = (aw.Agent(ScriptedModel([answer])) for answer in ('kept', 'and on'))")
    await host.cell(f"session = aw.Session.open({folder!r}, first); await aw.chat(first, 'go')")
    await host.cell(f"again = aw.Session.open({folder!r}, second); await aw.chat(second, 'next')")
    assert [message.text for message in host.value("second.state.context")] == ["go", "kept", "next", "and on"]
    await host.cell("again.close()")


@story
async def a_failing_model_says_so_on_the_card(host: Host) -> None:
    await host.cell("run = aw.chat(aw.Agent(ScriptedModel([fail(OSError('no network'))])), 'go')")
    await host.until_state("error")
    assert "no network" in json.dumps(host.messages("events"))


@story
async def the_magics_work(host: Host) -> None:
    await host.cell("%load_ext agent_widgets")
    await host.cell("helper = aw.Agent(ScriptedModel(['by magic']))")
    await host.cell("%%agent helper\ntell me")
    assert host.text() == "by magic"
    await host.cell("%agent list")
    await host.cell("%unload_ext agent_widgets")


@story
async def the_demo_model_answers_through_the_openai_client(host: Host) -> None:
    await host.cell("reply = await aw.chat(aw.Agent('demo'), 'hello')")
    assert host.value("reply.text")


@story
async def waiting_without_await_is_refused_and_says_what_to_do(host: Host) -> None:
    await host.cell("agent = aw.Agent(slow('x')); run = aw.chat(agent, 'go')")
    for line in ("run.wait()", "aw.Agent(ScriptedModel([])).reply_sync('go')", "agent.reply_sync('go')"):
        error = await _error_of(host, line)
        assert "InputError" in error
        assert "await" in error
        assert "Pyodide" in error
    await host.cell("run.stop(); await run")


@story
async def a_process_of_its_own_is_refused(host: Host) -> None:
    error = await _error_of(host, "@aw.tool(isolate='process')\ndef compute() -> int:\n    'Compute a lot.'\n    return 1")
    assert "cannot" in error
    assert "ToolDefinitionError" in error


@story
async def the_kernels_loop_is_the_same_one(host: Host) -> None:
    await host.cell("agent = aw.Agent(ScriptedModel(['a', 'b'])); await aw.chat(agent, 'go', loop='kernel')")
    await host.cell("reply = await aw.chat(agent, 'on', loop='own')")
    assert host.value("reply.text") == "b"


@story
async def nothing_was_imported_that_is_not_there(host: Host) -> None:
    lacking = {"zmq", "tornado.ioloop", "ipykernel.kernelbase", "nest_asyncio2", "multiprocessing.context"}
    assert sorted(lacking & set(sys.modules)) == []


async def _error_of(host: Host, code: str) -> str:
    try:
        await host.cell(code)
    except Exception as error:  # noqa: BLE001 - the cell's
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{code} went through")


async def tell(make_host: Callable[[], Host]) -> dict[str, str]:
    """Tell all of them, in one kernel; gives what went wrong by name, ``""`` if nothing did."""
    found: dict[str, str] = {}
    for one in STORIES:
        host = make_host()
        try:
            await host.cell(SETUP)
            await one(host)
        except Exception:  # noqa: BLE001 - reported, whatever it is
            found[one.__name__] = traceback.format_exc()
        else:
            found[one.__name__] = ""
    return found
