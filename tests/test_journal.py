"""The journal: written before anything follows from it, read back exactly, and silent about nothing that it lost."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets import journal as journal_module
from agent_widgets.agent import Agent
from agent_widgets.errors import SavedStateError
from agent_widgets.journal import Journal, _fold, _Taken, read_back
from agent_widgets.memory import Memory
from agent_widgets.messages import DataBlock, Msg, PermissionRule, TextBlock, ToolCallBlock, ToolResultBlock, URLSource
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say, think, wait
from agent_widgets.state import INTERRUPTED_TEXT, AgentState
from agent_widgets.store import Store
from agent_widgets.tools import tool
from agent_widgets.wire import load_state
from tests.validator import assert_valid

REASON = "not today: “ünder way” ☕"


@tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    return f"deleted from {table}"


@tool
async def draw(title: str) -> list[TextBlock | DataBlock]:
    """Draw a picture with this TITLE."""
    return [TextBlock(f"before {title}"), DataBlock(URLSource("https://example.org/a.png", "image/png"))]


@tool(external=True)
async def ask_person(question: str) -> str:
    """Ask a person who is somewhere else."""
    raise NotImplementedError


class Disk(Store):
    """A store whose appends can be watched, and refused."""

    refuses = False
    seen: Callable[[bytes], object] = len

    def append(self, data: bytes, *, sync: bool = False) -> None:
        if self.refuses:
            real, os.write = os.write, _no_room
            try:
                super().append(data, sync=sync)
            finally:
                os.write = real
        super().append(data, sync=sync)
        self.seen(data)

    def renew(self, name: str, state: Any, data: bytes = b"") -> None:
        if self.refuses:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().renew(name, state, data)


_real_write = os.write


def _no_room(descriptor: int, data: Any) -> int:
    """Half of a line fits, as on a disk that gets full; what is overwritten in its place needs no room."""
    if bytes(data).startswith(b"{"):
        return _real_write(descriptor, bytes(data)[: len(data) // 2])
    if len(data) == len("null"):
        return _real_write(descriptor, data)
    raise OSError(errno.ENOSPC, "No space left on device")


class Kept:
    """An agent whose memory is written to a folder."""

    def __init__(self, path: Path, *script: Turn, **options: Any) -> None:
        self.agent = Agent(ScriptedModel(list(script)), tools=[delete_rows, draw, ask_person], **options)
        self.path = path
        self.disk = Disk(path)
        self.told: list[str] = []
        self.journal = Journal(self.disk, "orders", self.agent.dump, self.told.append)
        self.agent.record_with(self.journal)
        self.journal.begin()

    def folded(self) -> AgentState:
        """The state in the files, without a repair."""
        if not self.journal._lock.locked():  # else it is told of a line, with all text before it
            self.journal._flush()
        found = self.disk.read()
        assert found
        memory = Memory()
        memory.restore(load_state(found[1]))
        for line in found[2]:
            _fold(line, memory, _Taken())
        return memory.state

    def after_crash(self) -> tuple[AgentState, tuple[Any, ...]]:
        """What another kernel reads if this one dies now."""
        copy = self.path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.path, copy)
        found = opened(copy)
        assert found
        return load_state(found[1]), found[2]


def opened(path: Path) -> Any:
    store = Store(path)
    try:
        return read_back(store)
    finally:
        store.close()


def _text_on_disk(kept: Kept) -> str:
    found = kept.disk.read()
    assert found
    said = [json.loads(line).get("said", {}) for line in found[2]]
    return "".join(event["delta"] for event in said if event.get("type") == "TEXT_BLOCK_DELTA")


def decision(agent: Agent, **reasons: str | None) -> ev.UserConfirmResultEvent:
    """Approve the calls whose reason is ``None``, deny the others."""
    calls = {block.id: block for block in agent.state.waiting()}
    results = tuple(
        ev.ConfirmResult(
            confirmed=reason is None, tool_call=calls[call_id], reason=reason or "", rules=calls[call_id].suggested_rules[:1]
        )
        for call_id, reason in reasons.items()
    )
    return ev.UserConfirmResultEvent(reply_id=agent.state.reply_id, confirm_results=results)


def results(state: AgentState) -> dict[str, ToolResultBlock]:
    return {block.id: block for message in state.context for block in message.content if isinstance(block, ToolResultBlock)}


SCRIPT: tuple[Any, ...] = (
    [think("Let me see."), say("I delete \ud83d half a character."), call("delete_rows", {"table": "a"}, "x")],
    [call("delete_rows", {"table": "b"}, "y"), call("draw", {"title": "☕"}, "z"), call("ask_person", {"question": "?"}, "w")],
    "Done.",
)


async def play(kept: Kept) -> None:
    """A pause, a denial, an approval for always, a picture, an outside result."""
    agent = kept.agent
    await agent.reply("clean up")
    await agent.reply(decision(agent, x=REASON))
    kept.journal.taken(decision(agent, y=None))
    await agent.reply(decision(agent, y=None))
    given = ToolResultBlock(id="w", name="ask_person", output="forty-two", state="success")
    await agent.reply(ev.ExternalExecutionResultEvent(reply_id=agent.state.reply_id, execution_results=(given,)))
    assert agent.state.rules == (PermissionRule("delete_rows"),)


# -- written and read ------------------------------------------------------------------------------------------------


async def test_what_is_on_the_disk_is_what_the_agent_remembers_at_every_change(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", *SCRIPT)
    compared = 0

    def compare(data: bytes) -> None:
        nonlocal compared
        if not data.startswith(b'{"asked"'):  # then the open reply has no id yet
            compared += 1
            assert kept.folded() == kept.agent.state

    kept.disk.seen = compare
    await play(kept)
    assert compared > 30
    assert kept.folded() == kept.agent.state


async def test_a_log_that_is_cut_at_any_byte_loads_valid(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", [say("I delete."), *SCRIPT[0][2:]], *SCRIPT[1:])
    await play(kept)
    kept.journal.close()
    log = next((tmp_path / "s").glob("log-*"))
    whole = log.read_bytes()
    assert len(whole) > 5_000
    judge = ScriptedModel(["fine"] * whole.count(b"\n"))
    loaded = -1
    for size in range(len(whole), -1, -1):
        os.truncate(log, size)
        store = Store(tmp_path / "s")
        found = store.read()
        store.close()
        assert found
        assert found[2] == whole[:size].split(b"\n")[1:-1]
        if len(found[2]) == loaded:
            continue  # the same whole lines, and their fold knows nothing else
        loaded = len(found[2])
        state = load_state(opened(tmp_path / "s")[1])
        assert state.check() == (), size
        if not state.waiting():
            await Agent(judge, state=state).reply("next")
            assert_valid(judge.requests[-1].messages)
    assert loaded == 0
    assert len(judge.requests) > 20


async def test_a_tool_begins_when_its_beginning_is_on_the_disk(tmp_path: Path) -> None:
    seen: list[bytes] = []

    @tool
    async def look(word: str) -> str:
        """Look at the log."""
        seen.append(b"".join(path.read_bytes() for path in (tmp_path / "s").glob("log-*")))
        return word

    kept = Kept(tmp_path / "s", [say("I look."), call("look", {"word": "tea"}, "l")], "ok")
    kept.agent.tools["look"] = look
    await kept.agent.reply("go")
    assert b"TOOL_RESULT_START" in seen[0]
    assert b"I look." in seen[0]
    assert b"TOOL_RESULT_END" not in seen[0]


async def test_a_burst_of_tokens_is_few_lines_and_is_written_when_nothing_more_comes(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", [say(["ab "] * 1000), wait(asyncio.Event())])
    written = asyncio.Event()
    lines: list[bytes] = []

    def seen(data: bytes) -> None:
        lines.append(data)
        if b"".join(lines).count(b"ab ") == 1000:
            written.set()

    kept.disk.seen = seen
    replying = asyncio.create_task(kept.agent.reply("go"))
    async with asyncio.timeout(5):
        await written.wait()
    assert len(lines) < 30
    kept.agent.interrupt()
    await replying
    assert kept.folded() == kept.agent.state


async def test_text_is_on_the_disk_a_tenth_of_a_second_after_it_was_said(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s")
    words = [f"word{number} " for number in range(60)]
    kept.agent.model = ScriptedModel([[say(words)]], tokens_per_second=100)
    said: list[tuple[float, str]] = []
    checked = 0
    async for event in kept.agent.reply_stream("go"):
        if isinstance(event, ev.TextBlockDeltaEvent):
            now = time.monotonic()
            old = [word for at, word in said if at <= now - 0.1]
            checked += len(old)
            said.append((now, event.delta))
            assert _text_on_disk(kept).startswith("".join(old))
    assert checked > 1000


async def test_a_flush_that_the_loop_is_too_busy_for_comes_with_the_next_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "s")
    kept.agent._memory.begin(())
    kept.agent._memory.apply(ev.TextBlockStartEvent(reply_id="r", block_id="b"))
    kept.agent._memory.apply(ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta="old "))
    later = journal_module.time.monotonic() + 0.05
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: later)
    kept.agent._memory.apply(ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta="new"))
    assert b"old new" in b"".join(kept.disk.read()[2])  # type: ignore[index]


async def test_a_log_begins_anew_when_it_has_outgrown_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "LOG_BYTES", 3_000)
    kept = Kept(tmp_path / "s", *(["x" * 500] * 40))
    log = tmp_path
    for number in range(40):
        await kept.agent.reply(f"question {number}")
        (log,) = (tmp_path / "s").glob("log-*")  # one
        assert log.stat().st_size == kept.disk.log_size < max(3_000, kept.disk.state_size) + 3_000
    assert int(log.stem.split("-")[1]) in range(5, 25)
    assert kept.folded() == kept.agent.state


async def test_a_summary_survives(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", "one", [say("two"), wait(asyncio.Event())])
    await kept.agent.reply("a")
    replying = asyncio.create_task(kept.agent.reply("b"))
    while "two" not in kept.agent.state.context[-1].text:
        await asyncio.sleep(0)
    kept.agent._memory.apply(ev.CustomEvent(name=ev.SUMMARY, value={"text": "they said one", "messages": 2, "blocks": 0}))
    assert kept.agent.state.summary is not None
    assert kept.after_crash()[0].summary == kept.agent.state.summary
    kept.agent.interrupt()
    await replying
    assert kept.folded() == kept.agent.state


async def test_a_rule_that_was_taken_back_does_not_come_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", *SCRIPT)
    await play(kept)
    assert kept.after_crash()[0].rules == (PermissionRule("delete_rows"),)
    kept.agent.forget_rule("delete_rows")
    assert kept.after_crash()[0].rules == ()


async def test_another_state_that_is_loaded_is_written_at_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", "one")
    await kept.agent.reply("a")
    kept.agent.load({})
    assert kept.after_crash()[0] == kept.agent.state
    assert kept.agent.state.context == ()


async def test_no_key_is_in_the_files(tmp_path: Path) -> None:
    key = "sk-very-secret-0123456789"
    agent = Agent("a-model", base_url="http://127.0.0.1:9/v1", api_key=key)
    store = Store(tmp_path / "s")
    journal = Journal(store, "s", agent.dump, print)
    agent.record_with(journal)
    journal.begin()
    with pytest.raises(Exception, match="server"):
        await agent.reply("hello")
    journal.close()
    files = [path.read_bytes() for path in (tmp_path / "s").iterdir()]
    assert any(b"REPLY_END" in data for data in files)
    assert not any(key.encode() in data for data in files)


# -- a crash between a decision and what it allows --------------------------------------------------------------------


async def crashed_at(
    tmp_path: Path, reasons: dict[str, str | None], is_last: Callable[[bytes], bool]
) -> tuple[AgentState, tuple[Any, ...]]:
    """Decide about ``x`` and ``y``, and die when the first such line has been written."""
    kept = Kept(
        tmp_path / "s", [call("delete_rows", {"table": "a"}, "x"), call("delete_rows", {"table": "b"}, "y")], "Done.", "More."
    )
    found: list[tuple[AgentState, tuple[Any, ...]]] = []
    await kept.agent.reply("go")
    kept.disk.seen = lambda data: found.append(kept.after_crash()) if not found and is_last(data) else None
    await kept.agent.reply(decision(kept.agent, **reasons))
    return found[0]


async def test_a_decision_without_its_result_waits_to_take_effect(tmp_path: Path) -> None:
    state, taken = await crashed_at(tmp_path, {"x": None, "y": REASON}, lambda data: b"USER_CONFIRM" in data)
    assert [call.id for call in state.waiting()] == ["x", "y"]
    assert [(r.confirmed, r.tool_call.id, r.reason) for r in taken[0].confirm_results] == [(True, "x", ""), (False, "y", REASON)]


async def test_half_a_denial_is_said_again_and_whole(tmp_path: Path) -> None:
    state, taken = await crashed_at(tmp_path, {"y": REASON}, lambda data: b"TOOL_RESULT_START" in data)
    assert [(call.id, call.state) for call in state.waiting()] == [("x", "asking"), ("y", "asking")]
    assert [result.reason for result in taken[0].confirm_results] == [REASON]
    assert "y" not in results(state)


async def test_a_call_that_has_begun_is_closed_and_its_approval_is_used_up(tmp_path: Path) -> None:
    state, taken = await crashed_at(tmp_path, {"x": None}, lambda data: b"TOOL_RESULT_START" in data)
    assert [call.id for call in state.waiting()] == ["y"]
    assert taken == ()
    assert (results(state)["x"].state, results(state)["x"].text()) == ("interrupted", INTERRUPTED_TEXT)


async def test_half_an_outside_result_is_given_again_and_whole(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", [call("ask_person", {"question": "?"}, "w")], "Done.")
    await kept.agent.reply("go")
    given = ToolResultBlock(id="w", name="ask_person", output="forty-two", state="success")
    kept.journal.taken(ev.ExternalExecutionResultEvent(reply_id=kept.agent.state.reply_id, execution_results=(given,)))
    kept.agent._memory.apply(ev.ToolResultTextDeltaEvent(reply_id=kept.agent.state.reply_id, tool_call_id="w", delta="forty"))
    kept.journal._flush()
    state, taken = kept.after_crash()
    assert [(call.id, call.state) for call in state.waiting()] == [("w", "submitted")]
    assert results(state)["w"].text() == ""
    assert taken[0].execution_results == (given,)


# -- a disk that fails ------------------------------------------------------------------------------------------------


async def test_a_full_disk_is_told_once_and_stops_nothing_and_is_made_good_when_there_is_room(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", "one", "two", "three")
    await kept.agent.reply("a")
    kept.disk.refuses = True
    assert (await kept.agent.reply("b")).text == "two"
    assert len(kept.told) == 1
    assert "No space left on device" in kept.told[0]
    state, _ = kept.after_crash()
    assert [message.text for message in state.context] == ["a", "one"]
    kept.disk.refuses = False
    assert (await kept.agent.reply("c")).text == "three"
    assert len(kept.told) == 2
    assert "again" in kept.told[1]
    assert kept.folded() == kept.agent.state


async def test_what_may_have_run_while_the_disk_failed_is_not_asked_about_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", call("delete_rows", {"table": "a"}, "x"), [say(["half"]), wait(asyncio.Event())])
    await kept.agent.reply("go")
    assert [call.id for call in kept.after_crash()[0].waiting()] == ["x"]
    kept.disk.refuses = True
    replying = asyncio.create_task(kept.agent.reply(decision(kept.agent, x=None)))
    while results(kept.agent.state).get("x", ToolResultBlock(id="", name="")).state != "success":
        await asyncio.sleep(0)
    state, taken = kept.after_crash()
    assert (state.waiting(), taken, results(state)["x"].state, state.check()) == ((), (), "interrupted", ())
    kept.agent.interrupt()
    await replying


async def test_a_folder_that_is_removed_is_told_and_stops_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", "one", "two")
    shutil.rmtree(tmp_path / "s")
    assert (await kept.agent.reply("a")).text == "one"
    assert (await kept.agent.reply("b")).text == "two"
    assert [("has been removed" in text) for text in kept.told] == [True]
    kept.journal.close()


# -- damage -----------------------------------------------------------------------------------------------------------


def _swap(file: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("log-1.jsonl", b'{"said"', b'{"s\x00d"', "line 3 of its log"),
        ("log-1.jsonl", b'{"asked"', b"\xff{", "line 2 of its log"),
        ("log-1.jsonl", b'{"asked": [', b'{"asked": [5,', "line 2 of its log"),
        ("log-1.jsonl", b'{"asked": [', b'{"thought": [', "'thought' is not known"),
        ("log-1.jsonl", b'"REPLY_START"', b'"REPLY_STRAT"', "line 3 of its log"),
        ("log-1.jsonl", b"\n", b"\n\n", "line 2 of its log"),
        ("log-1.jsonl", b'"version": 1', b'"version": 2', "newer agent-widgets"),
        ("log-1.jsonl", b"agent-widgets log", b"something else", "damaged in line 1"),
        ("state.json", b'"version": 1', b'"version": 2', "newer agent-widgets"),
        ("state.json", b'"log": 1', b'"log": 7', "is missing"),
        ("state.json", b'"log": 1', b'"log": ""', "names no log"),
        ("state.json", b'"log": 1}', b'"log": 1', "is damaged"),
        ("state.json", b'"context": []', b'"context": 5', "not a saved agent state"),
    ],
)
async def test_damage_is_told_and_every_file_is_left_as_it_is(
    tmp_path: Path, name: str, old: bytes, new: bytes, said: str
) -> None:
    kept = Kept(tmp_path / "s", "one")
    await kept.agent.reply("a")
    kept.journal.close()
    _swap(tmp_path / "s" / name, old, new)
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    with pytest.raises(SavedStateError) as caught:
        opened(tmp_path / "s")
    assert said in str(caught.value)
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before


async def test_fields_that_a_newer_writer_adds_are_ignored(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s", "one")
    await kept.agent.reply("a")
    _swap(tmp_path / "s" / "log-1.jsonl", b'"type": "REPLY_START"', b'"colour": "red", "type": "REPLY_START"')
    assert kept.after_crash()[0] == kept.agent.state


def test_a_state_with_an_open_reply_goes_on_with_its_next_event() -> None:
    memory = Memory()
    message = Msg("bob", (ToolCallBlock(id="c", name="look"),), "assistant", id="r")
    memory.restore(AgentState(context=(message,), reply_id="r", cur_iter=2))
    memory.apply(ev.ToolResultStartEvent(reply_id="r", tool_call_id="c", tool_call_name="look"))
    assert (memory.steps, memory.state.reply_id, len(memory.state.context[0].content)) == (2, "r", 2)
    assert json.dumps(replace(memory.state, rules=()).reply_id) == '"r"'
