"""The README's Python is run as it stands, block after block, as a notebook would."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from agent_widgets.models.demo import DemoModel
from agent_widgets.sessions import sessions

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


async def test_every_block_runs_after_the_ones_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DemoModel.__init__.__kwdefaults__ or {}, "tokens_per_second", None)
    names: dict[str, Any] = {"__name__": "readme"}
    assert len(BLOCKS) >= 3
    for number, block in enumerate(BLOCKS):
        code = compile(block, f"README block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, names)
        if inspect.isawaitable(made):
            await made
        if number == 0:
            assert capsys.readouterr().out == "()\n"
            assert names["reply"].text
    assert not [run for session in sessions() for run in session.runs if run.status == "error"]
