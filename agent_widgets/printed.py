"""What tools print and show, folded: text is joined as a terminal would show it, an update takes the place of what it updates.

Pure. ``js/src/printed.ts`` is its twin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent_widgets.messages import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool printed (``text``) or displayed (``data``, by MIME type). Never sent to the model.

    One that is called ``"waits"`` says what the call waits for.
    """

    call_id: str
    name: str
    text: str = ""
    data: JsonObject | None = None
    metadata: JsonObject | None = None
    display_id: str | None = None


class PrintedBuilder:
    """Folds the values of ``TOOL_OUTPUT`` events."""

    def __init__(self, start: Iterable[ToolOutput] = ()) -> None:
        self._outputs: list[tuple[ToolOutput, list[str]]] = [(output, [output.text]) for output in start]

    def freeze(self) -> tuple[ToolOutput, ...]:
        """What is to be seen, in the order in which it came."""
        return tuple(replace(o, text=_printed(pieces)) if o.data is None else o for o, pieces in self._outputs)

    def add(self, value: JsonObject) -> None:
        """One more; a value that is not of this kind is ignored."""
        call_id, name, text, data = value.get("call_id"), value.get("name"), value.get("text", ""), value.get("data")
        if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(text, str):
            return
        if name in ("clear", "waits"):  # what it waits for is said once, and taken back
            self._outputs = [o for o in self._outputs if o[0].call_id != call_id or (name == "waits" and o[0].name != name)]
            if name == "clear" or not text:
                return
        if isinstance(data, dict):
            self._display(call_id, name, value, data)
            return
        for output, pieces in reversed(self._outputs):
            if output.call_id == call_id:
                if output.name == name and output.data is None:
                    pieces.append(text)
                    return
                break
        self._outputs.append((ToolOutput(call_id=call_id, name=name), [text]))

    def _display(self, call_id: str, name: str, value: JsonObject, data: JsonObject) -> None:
        metadata, display_id = value.get("metadata"), value.get("display_id")
        output = ToolOutput(
            call_id=call_id,
            name=name,
            data=data,
            metadata=metadata if isinstance(metadata, dict) else None,
            display_id=display_id if isinstance(display_id, str) else None,
        )
        if value.get("update") is not True:
            self._outputs.append((output, []))
            return
        for at, (before, _) in enumerate(self._outputs):
            if before.call_id == call_id and before.display_id == output.display_id is not None:
                self._outputs[at] = (output, [])


def overwritten(text: str) -> str:
    """Printed text as a terminal leaves it: what follows a carriage return takes the place of its line."""
    if "\r" not in text:
        return text
    *lines, last = text.split("\n")
    on_its_way = last[len(last.rstrip("\r")) :]  # the next text takes the place of this line
    return "\n".join([*(_left_of(line.rstrip("\r")) for line in lines), _left_of(last.rstrip("\r")) + on_its_way])


def _printed(pieces: list[str]) -> str:
    pieces[:] = [overwritten("".join(pieces))]
    return pieces[0]


def _left_of(line: str) -> str:
    return line[line.rfind("\r") + 1 :]
