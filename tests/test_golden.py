"""The golden logs: Python and TypeScript fold them to the same transcripts, and the generated types are up to date."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import JsonValue

from agent_widgets import events as ev
from agent_widgets.messages import JsonObject
from agent_widgets.transcript import TranscriptBuilder, fold
from agent_widgets.wire import dump_event, load_event, page_event, page_transcript

ROOT = Path(__file__).resolve().parent.parent
LOGS = sorted((ROOT / "tests" / "golden").glob("*.jsonl"))
UNTIMED = {"id", "created_at", "finished_at"}


def load_script(path: Path) -> ModuleType:
    """A script of this checkout as a module: neither ``js`` nor ``golden`` is a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def read(log: Path) -> tuple[ev.Event, ...]:
    return tuple(load_event(line) for line in log.read_text(encoding="utf-8").splitlines())


def expected(log: Path) -> JsonObject:
    return json.loads(log.with_suffix(".transcript.json").read_text(encoding="utf-8"))


def test_there_are_golden_logs() -> None:
    assert len(LOGS) >= 8


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_folding_a_log_gives_its_transcript(log: Path) -> None:
    assert page_transcript(fold(None, *read(log))) == expected(log)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_reading_the_transcript_in_between_changes_nothing(log: Path) -> None:
    builder = TranscriptBuilder()
    for event in read(log):
        builder.apply(event)
        builder.freeze()
    assert page_transcript(builder.freeze()) == expected(log)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_going_on_from_any_point_gives_the_same(log: Path) -> None:
    events = read(log)
    for cut in range(len(events)):
        assert page_transcript(fold(fold(None, *events[:cut]), *events[cut:])) == expected(log)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_events_survive_writing_and_reading(log: Path) -> None:
    events = read(log)
    assert tuple(load_event(json.loads(json.dumps(dump_event(event)))) for event in events) == events


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_the_page_form_folds_to_the_same_but_for_ids_and_times(log: Path) -> None:
    """A delta in page form has lost its reply, id and time; no fold looks at them."""
    events = [load_event(_with_reply(page_event(event))) for event in read(log)]
    assert _untimed(page_transcript(fold(None, *events))) == _untimed(expected(log))


def test_the_logs_are_those_that_record_writes() -> None:
    record = load_script(ROOT / "tests" / "golden" / "record.py")
    for path, text in record.files():
        assert path.read_text(encoding="utf-8") == text, f"run  python tests/golden/record.py  and read the diff of {path.name}"


def test_the_generated_types_are_up_to_date() -> None:
    generator = load_script(ROOT / "js" / "generate_events.py")
    written = (ROOT / "js" / "src" / "events.ts").read_text(encoding="utf-8")
    assert generator.generate() == written, "run  python js/generate_events.py"


def _with_reply(event: JsonObject) -> JsonObject:
    return {"reply_id": "r1", **event} if str(event["type"]).endswith("_DELTA") else event


def _untimed(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _untimed(part) for key, part in value.items() if key not in UNTIMED}
    return [_untimed(part) for part in value] if isinstance(value, list) else value
