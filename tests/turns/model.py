"""A model with a cue for each prompt: the script for the one that is stopped, one sentence for those before and after."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from agent_widgets.backends import ModelDelta, ModelRequest
from agent_widgets.compression import SUMMARY_PROMPT
from agent_widgets.models.scripted import ScriptedModel, Turn, say
from tests.validator import faults

ALL_IS_WELL = "All is well."


class Cues:
    """Says the script while "go" is the last prompt, and judges each request as a strict server would."""

    name = "cues"

    def __init__(self, script: Sequence[Turn], cue: str = "go") -> None:
        self._script = ScriptedModel(script)
        self._cue = cue
        self._below: list[Cues] = []
        self.refused: list[str] = []
        self.open = 0

    def below(self, cue: str, *script: Turn) -> Cues:
        """The model of a sub-agent. What is refused and open there is so here."""
        made = Cues(script, cue)
        made.refused = self.refused
        self._below.append(made)
        return made

    @property
    def all_open(self) -> int:
        """Streams that are open, those of sub-agents too."""
        return self.open + sum(model.all_open for model in self._below)

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        self.refused += faults(request.messages)
        prompts = [message["content"] for message in request.messages if message["role"] == "user"]
        has_cue = prompts[-1] == self._cue and self._script.unused()
        source = self._script if has_cue else ScriptedModel([[say(ALL_IS_WELL)]])
        if request.instructions == SUMMARY_PROMPT:
            source = ScriptedModel([[say(["notes ", "on ", "that"])]])
        self.open += 1
        try:
            async for piece in source.stream(request):
                yield piece
        finally:
            self.open -= 1
