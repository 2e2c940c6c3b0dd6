"""A card in a real kernel: decisions, views that come late, what tools print, a queue, headless runs, magics."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent_widgets.wire import fingerprint
from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, SOON, Page

ASKS = """
agent = aw.Agent(ScriptedModel([[call('delete_rows', {'table': 'orders'})], [say('as you say')]]), tools=[delete_rows])
"""


@pytest.fixture
def page(front: Front) -> Page:
    front.run(SETUP)
    return Page(front)


@pytest.mark.parametrize("waits", ["await run", "run.wait()", ""])
def test_a_denial_reaches_the_model_with_its_reason_word_for_word(front: Front, page: Page, waits: str) -> None:
    front.run(ASKS)
    cell = front.execute(f"run = aw.chat(agent, 'clean up'); {waits}")
    page.decide("deny", reason="not before the back-up of Tuesday!")
    page.wait_for_state("completed")
    assert front.wait(cell)["status"] == "ok"
    assert front.run("print(agent.model.requests[-1].messages[-1]['content'])") == (
        '<system-reminder>The execution of tool "delete_rows" is denied by user!</system-reminder>\n'
        "Reason: not before the back-up of Tuesday!\n"
    )


def test_an_approval_executes_the_call_once(front: Front, page: Page) -> None:
    front.run(ASKS)
    front.run("run = aw.chat(agent, 'clean up')")
    page.decide("approve")
    page.wait_for_state("completed")
    assert front.run("print(agent.model.requests[-1].messages[-1]['content'])") == "3\n"


def test_a_stale_decision_executes_nothing_and_says_so(front: Front, page: Page) -> None:
    front.run(ASKS)
    front.run("run = aw.chat(agent, 'clean up')")
    page.wait_for_state("paused")
    page.send("decide", call_id="call_1", fingerprint="0" * 16, decision="approve")
    page.wait_for_messages("notice")
    page.send("decide", call_id="no such call", fingerprint="0" * 16, decision="approve")
    page.wait_for_messages("notice", 2)
    assert "arguments have changed" in page.notices()[0]
    assert "not waiting" in page.notices()[1]
    assert front.run("print(run.status, len(agent.model.requests))") == "paused 1\n"


def test_a_hostile_page_gets_a_sentence_and_hurts_nothing(front: Front, page: Page) -> None:
    front.run("agent = aw.Agent(slow())\nrun = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    for content in (
        {"kind": "explode"},
        {"kind": "stop"},
        {"kind": "stop", "id": 7},
        {"kind": "stop", "id": "x", "run_id": ["y"]},
        {},
    ):
        front.wait_idle(front.custom(page.card.comm_id, content))
    page.transcript()
    ids = [message["id"] for message in page.card.custom if message["kind"] == "notice"]
    assert sorted(ids) == [""] * 8 + ["x"]  # each comes twice, and is known again by its id
    assert all("nothing was done" in notice for notice in page.notices())
    assert front.run("print(run.status)") == "running\n"
    page.stop()


def test_stop_on_a_paused_run_ends_it_and_the_history_is_valid(front: Front, page: Page) -> None:
    front.run(ASKS)
    front.run("run = aw.chat(agent, 'clean up')")
    page.wait_for_state("paused")
    page.stop()
    page.wait_for_state("interrupted")
    assert front.run("print(run.status, agent.state.check(), agent.state.waiting())") == "interrupted () ()\n"
    assert front.run("print((await aw.chat(agent, 'thanks')).text)").endswith("as you say\n")


def test_a_late_view_gets_the_whole_text_while_a_cell_is_busy(front: Front, page: Page) -> None:
    front.run("agent = aw.Agent(slow())")
    cell = front.execute("run = aw.chat(agent, 'tell me'); run.wait()")
    page.wait_for_text()
    asked = time.monotonic()
    page.send("hello", have=-1, page="another")
    page.wait_for_messages("full")
    assert time.monotonic() - asked < SOON
    full = next(message for message in page.card.custom if message["kind"] == "full")
    text = full["runs"][0]["transcript"]["message"]["content"][0]["text"]
    assert text == "word " * (len(text) // 5)
    assert page.texts().startswith(text)
    page.stop()
    front.wait(cell)


def test_a_second_prompt_waits_its_turn_and_its_card_says_so(front: Front, page: Page) -> None:
    front.run("agent = aw.Agent(slow('second answer'))\nfirst = aw.chat(agent, 'one')")
    page.wait_for_text()
    other = Page(front)
    front.run("second = aw.chat(agent, 'two')")
    queued = other.wait_for_state("queued")
    assert queued.content["data"]["content"]["status"]["ahead"] == 1
    page.stop()
    other.wait_for_state("completed")
    assert front.run("print(second.text)") == "second answer\n"


def test_the_magic_cell_waits_in_order_and_keeps_its_text_as_it_is(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets\nhelper = aw.Agent(ScriptedModel([[say('one')], [say('two')]]))")
    body = "what is {x}?\n  'quotes' \"and\" %percent !bang \\n"
    cells = [
        front.execute(code)
        for code in (
            f"%%agent helper\n{body}",
            "order.append(helper.model.requests[0].messages[-1]['content'])",
            "%%agent helper\nnext",
        )
    ]
    assert [front.wait(cell)["status"] for cell in cells] == ["ok", "ok", "ok"]
    assert front.run("print(order[0])") == body + "\n"
    assert front.run("print(len(helper.model.requests))") == "2\n"
    assert "%%agent helper" in front.run("%history -l 4")


def test_a_press_about_a_run_that_has_ended_is_answered_with_its_end(front: Front, page: Page) -> None:
    """A server drops what a kernel says too fast, the last message too: then nothing else would tell the page."""
    front.run("agent = aw.Agent(ScriptedModel([[say('done')]]))\nrun = aw.chat(agent, 'go'); run.wait()")
    page.settle()
    before = len([m for m in page.card.custom if m["kind"] == "events"])
    front.wait_idle(page.stop())
    page.transcript()
    told = [m for m in page.card.custom if m["kind"] == "events"]
    assert len(told) == before + 1
    assert (told[-1]["status"]["state"], told[-1]["seq"]) == ("completed", told[-2]["seq"] + 1)
    assert front.run("print(run.status)") == "completed\n"


def test_what_is_not_understood_is_answered_once_to_the_press_that_said_it(front: Front, page: Page) -> None:
    """It comes twice, by the tap and by the ordinary handler."""
    front.run("agent = aw.Agent(slow())\nrun = aw.chat(agent, 'go')")
    page.wait_for_text()
    for press in ("one", "two"):
        front.wait_idle(page.send("steer", command_id=press, text="long " * 100_000))
    page.transcript()
    assert [m["id"] for m in page.card.custom if m["kind"] == "notice"] == ["one", "two"]
    page.stop()
    page.wait_for_state("interrupted")


def test_a_card_is_not_continued_when_the_conversation_has_gone_on_elsewhere(front: Front, page: Page) -> None:
    front.run("agent = aw.Agent(slow('another answer', 'unwanted'))\nrun = aw.chat(agent, 'go')")
    page.wait_for_text()
    page.stop()
    page.wait_for_state("interrupted")
    assert front.run("print((await aw.chat(agent, 'something else')).text)").endswith("another answer\n")
    page.send("resume")
    page.wait_for_messages("notice")
    assert page.notices() == ["The conversation has gone on since, so nothing was done. Ask in a new cell."]
    assert front.run("print(len(agent.model.requests))") == "2\n"


def test_a_long_static_twin_does_not_hold_up_other_runs(front: Front, page: Page) -> None:
    """Its HTML takes half a second for 200 kB. Other cards stream and stop meanwhile."""
    front.run("long = aw.Agent(ScriptedModel([[say('**word** `code` and text. ' * 20_000)]]))")
    front.run("other = aw.Agent(slow())\nsecond = aw.chat(other, 'go')")
    page.wait_for_text()
    front.run("gaps, seen = [], []")
    front.run(
        "def look():\n    now = time.monotonic(); gaps.append(now - seen[-1]); seen.append(now)\n"
        "    second.loop.call_later(0.01, look)\nseen.append(time.monotonic()); second.loop.call_soon_threadsafe(look)"
    )
    front.run("first = aw.chat(long, 'go'); first.wait()")
    front.wait_for(lambda m: m.type == "update_display_data" and len(str(m.content)) > 500_000, 30)
    assert float(front.run("print(max(gaps))")) < 0.5
    page.stop()
    page.wait_for_state("interrupted")


def test_the_magic_cell_is_stopped_by_the_kernels_interrupt(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets\nhelper = aw.Agent(slow('went on', model=InWaitingCell))")
    cell = front.execute("%%agent helper\ntell me")
    page.wait_for_text()
    front.interrupt()
    assert front.wait(cell)["ename"] == "AgentStopped"
    assert front.run("%agent list").startswith("<Session 'assistant': 1 runs, ")
    front.run("%%agent helper\ngo on")
    assert front.run("print(helper.state.context[-1].text)") == "went on\n"


def test_bad_magic_arguments_are_explained(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets")
    said = front.run("%%agent --frobnicate\nhello")
    assert "UsageError" in said
    assert "--no-wait" in said
    assert "not a command" in front.run("%agent explode")


def test_a_chat_without_a_prompt_shows_the_waiting_run_again_and_either_card_decides(front: Front, page: Page) -> None:
    front.run(ASKS)
    front.run("run = aw.chat(agent, 'clean up')")
    page.wait_for_state("paused")
    again = Page(front)
    assert front.run("print(aw.chat(agent) is run)").endswith("True\n")
    call = again.transcript()["message"]["content"][0]
    again.send("decide", call_id=call["id"], fingerprint=fingerprint(call["name"], call["input"]), decision="deny", reason="no")
    page.wait_for_state("completed")
    again.wait_for_state("completed")


def test_a_session_saved_while_it_waits_waits_again_in_a_new_kernel(
    front: Front, page: Page, kernel_python: Path, tmp_path: Path
) -> None:
    file = tmp_path / "session.json"
    front.run(ASKS)
    front.run("run = aw.chat(agent, 'clean up')")
    page.wait_for_state("paused")
    front.run(f"[session] = aw.sessions(); session.save({str(file)!r})")
    with Front(kernel_python) as other:
        other.run(SETUP)
        other.run("agent = aw.Agent(ScriptedModel([[say('as you say')]]), tools=[delete_rows])")
        other.run(f"aw.Session.load({str(file)!r}, agent)")
        again = Page(other)
        other.run("run = aw.chat(agent)")
        call = again.transcript()["message"]["content"][0]
        again.send("decide", call_id=call["id"], fingerprint=fingerprint(call["name"], call["input"]), decision="approve")
        again.wait_for_state("completed")
        assert other.run("print(agent.model.requests[-1].messages[-1]['content'], run.text)") == "3 as you say\n"


def test_after_a_kernel_was_killed_the_same_two_lines_bring_its_buttons_back_before_the_new_prompt(
    front: Front, page: Page, kernel_python: Path, tmp_path: Path
) -> None:
    lines = f"session = aw.Session.open({str(tmp_path / 'orders.session')!r}, agent)\nrun = aw.chat(agent, 'clean up')"
    front.run(ASKS)
    front.run(lines)
    page.wait_for_state("paused")
    front.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with Front(kernel_python) as other:
        other.run(SETUP)
        other.run("agent = aw.Agent(ScriptedModel([[say('as you say')], [say('again')]]), tools=[delete_rows])")
        again = Page(other)  # of the first card: the one with the buttons
        assert _opens(other, lines).endswith("2 runs\n")
        call = again.transcript()["message"]["content"][0]
        again.send("decide", call_id=call["id"], fingerprint=fingerprint(call["name"], call["input"]), decision="approve")
        again.wait_for_state("completed")
        assert other.run("run.wait(); print([m.text for m in agent.state.context])") == (
            "['clean up', 'as you say', 'clean up', 'again']\n"
        )


def _opens(front: Front, lines: str) -> str:
    """Run the lines once the killed kernel is gone, which frees its folder."""
    said, end = "", time.monotonic() + 10
    while time.monotonic() < end:
        said = front.run(
            f"try:\n    {lines.replace(chr(10), chr(10) + '    ')}\nexcept aw.SavedStateError as e:\n    print(e)\n"
            "else:\n    print(len(session.runs), 'runs')"
        )
        if "open in another kernel" not in said:
            return said
        time.sleep(0.05)
    return said
