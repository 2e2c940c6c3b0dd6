"""Stories: what a model says, what its tools do, and who interferes when. Values, made from a seed, that print as Python."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent_widgets.models.scripted import Item, call, fail, say, think

Script = tuple[tuple[Item, ...], ...]
Way = Literal["reply", "stream", "session"]
Deed = Literal["now", "step", "now twice", "step, then now", "cancel", "crash", "second", "stop second", "approve", "deny"]
Answer = Literal[
    "approve",
    "deny",
    "first",
    "mixed",
    "edit",
    "bad edit",
    "always",
    "twice",
    "both",
    "stale",
    "user interrupt",
    "interrupt",
    "deny and stop",
    "move",
    "prompt",
]
Reading = Literal["all", "slow", "break", "close", "fail"]


@dataclass(frozen=True)
class Act:
    """Somebody interferes: at the turn of the loop, the event or the (virtual) second ``at``."""

    at: float
    by: Literal["turn", "event", "second"]
    deed: Deed
    reason: str = ""
    through: Literal["run", "agent", "session", "thread"] = "run"


@dataclass(frozen=True)
class Choice:
    """What a person does about a pause."""

    answer: Answer
    reason: str = ""
    mask: int = 0


@dataclass(frozen=True)
class Story:
    """One case."""

    way: Way
    scripts: tuple[Script, ...]
    acts: tuple[Act, ...] = ()
    choices: tuple[Choice, ...] = ()
    piece_seconds: float | None = None
    max_steps: int = 6
    reading: Reading = "all"
    read: int = 0
    timeout: float | None = None
    deadline: float | None = None
    resumes: int = 0
    raises: bool = False
    stubborn_model: Literal["no", "ends", "goes on"] = "no"


TOOLS = {
    "quick": 5,
    "slow": 5,
    "failing": 2,
    "thread": 3,
    "polling": 2,
    "deaf": 2,
    "swallowing": 2,
    "stubborn": 0.3,
    "streaming": 3,
    "stepping": 2,
    "alone": 3,
    "printing": 1,
    "self_cancelling": 0.5,
    "self_stopping": 0.5,
    "ask_quick": 4,
    "ask_slow": 2,
    "ask_thread": 2,
    "ask_alone": 2,
    "nothing_like_it": 0.5,
}
"""The tools of a story (``stage.py`` has them), and how often they are asked for."""

REASONS = ("", "enough", "Not this table — use `archive`!", 'line one\nline "two"', "  spaces  ", "{}%s<b>\\", "ñ 漢字 🙂")


_STOPS: tuple[Deed, ...] = ("now", "now", "now", "now", "now", "step", "step", "step", "step", "now twice", "step, then now")


def story_of(seed: int) -> Story:
    """The story of this seed."""
    return _Teller(random.Random(seed)).story()


class _Teller:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._keys = 0

    def story(self) -> Story:
        chance = self._chance
        way: Way = chance.choice(("reply", "stream", "session"))
        scripts = tuple(self._script() for _ in range(2))
        return Story(
            way=way,
            scripts=scripts,
            acts=tuple(self._act(way) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 4)))),
            choices=tuple(self._choice() for _ in range(chance.randint(0, 5))),
            piece_seconds=chance.choice((None, None, 0.001, 0.01)),
            max_steps=chance.choice((1, 2, 3, 6, 6)),
            reading=chance.choice(("all", "all", "all", "slow", "break", "close", "fail")),
            read=chance.randint(1, 40),
            timeout=chance.uniform(0, 0.3) if way != "session" and chance.random() < 0.15 else None,
            deadline=chance.uniform(0, 0.3) if way == "session" and chance.random() < 0.15 else None,
            resumes=chance.choice((0, 0, 1, 2)),
            raises=chance.random() < 0.1,
            stubborn_model=chance.choice(("ends", "goes on")) if chance.random() < 0.05 else "no",
        )

    def _script(self) -> Script:
        turns = [self._step() for _ in range(self._chance.choice((0, 1, 1, 2, 2, 3, 4)))]
        return (*turns, self._last())

    def _step(self) -> tuple[Item, ...]:
        items = self._talk()
        for _ in range(self._chance.choice((1, 1, 2, 2, 3))):
            items.append(self._call())
            if self._chance.random() < 0.15:
                items += self._talk()
        if self._chance.random() < 0.08:
            items.insert(self._chance.randint(0, len(items)), self._failure())
        return tuple(items)

    def _last(self) -> tuple[Item, ...]:
        items: list[Item] = [*self._talk(), say(["All ", "is ", "said."])]
        if self._chance.random() < 0.12:
            items.insert(self._chance.randint(0, len(items)), self._failure())
        return tuple(items)

    def _talk(self) -> list[Item]:
        kinds = self._chance.choice(((), (say,), (think,), (think, say), (say, think, say)))
        return [kind(["one ", "two ", "three "][: self._chance.randint(1, 3)]) for kind in kinds]

    def _call(self) -> Item:
        chance = self._chance
        self._keys += 1
        name = chance.choices(tuple(TOOLS), tuple(TOOLS.values()))[0]
        values: dict[str, Any] = {"key": f"k{self._keys}", "seconds": round(chance.choice((0.0, 0.01, 0.05, 0.1, 0.2, 0.5)), 3)}
        text = json.dumps(values)
        trouble = chance.random()
        if trouble < 0.06:
            text = text[: chance.randint(0, len(text) - 1)]
        elif trouble < 0.09:
            text = json.dumps({**values, "what": 1})
        return call(name, text, "same" if chance.random() < 0.06 else f"c{self._keys}")

    def _failure(self) -> Item:
        return fail(self._chance.choice(("the line broke", RuntimeError("no such model"))))

    def _act(self, way: Way) -> Act:
        chance = self._chance
        by = chance.choice(("turn", "turn", "turn", "event", "event", "second"))
        ranges = {"turn": 2 ** chance.uniform(2, 8), "event": 2 ** chance.uniform(1, 6.5), "second": chance.uniform(0, 0.6)}
        at = ranges[by] if by == "second" else int(ranges[by])
        deeds: tuple[Deed, ...] = (*_STOPS, "cancel", "cancel", "crash", "second")
        if way == "session":
            deeds += ("second", "second", "stop second", "approve", "approve", "deny")
        return Act(
            at=at,
            by=by,
            deed=chance.choice(deeds),
            reason=chance.choice(REASONS),
            through=chance.choice(("run", "agent", "session" if way == "session" else "agent", "thread")),
        )

    def _choice(self) -> Choice:
        answers: tuple[Answer, ...] = (
            *("approve", "approve", "approve", "deny", "deny", "first", "mixed", "edit", "bad edit", "always", "twice", "both"),
            *("stale", "user interrupt", "interrupt", "deny and stop", "move", "prompt"),
        )
        return Choice(self._chance.choice(answers), self._chance.choice(REASONS), self._chance.randint(0, 7))


def simpler(story: Story) -> Iterator[Story]:
    """Stories that leave one thing out."""
    for field in ("acts", "choices"):
        things = getattr(story, field)
        for number in range(len(things)):
            yield replace(story, **{field: things[:number] + things[number + 1 :]})
    plain: dict[str, Any] = {"timeout": None, "deadline": None, "resumes": 0, "raises": False}
    plain |= {"stubborn_model": "no", "reading": "all", "piece_seconds": None}
    for field, value in plain.items():
        if getattr(story, field) != value:
            yield replace(story, **{field: value})
    for which, script in enumerate(story.scripts):
        for number, turn in enumerate(script):
            rest = [script[:number] + script[number + 1 :]] if len(script) > 1 else []
            if len(turn) > 1:
                turns = [turn[:item] + turn[item + 1 :] for item in range(len(turn))]
                rest += [(*script[:number], smaller, *script[number + 1 :]) for smaller in turns]
            for shorter in rest:
                yield replace(story, scripts=(*story.scripts[:which], shorter, *story.scripts[which + 1 :]))
