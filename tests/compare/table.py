"""The results as Markdown, each system in the same columns; a cell that cannot apply says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.compare.scenarios import SCENARIOS, Way, does_not_apply
from tests.compare.scoring import KINDS, Kind, Score, total

CLOSED_WITHIN_MS = 50.0

HEADS: dict[Kind, str] = {
    "calls and results do not pair": "unpaired",
    "arguments are not JSON": "broken JSON",
    "result lost": "lost",
    "executed twice": "twice",
    "model called after the stop": "model after",
    "tool begun after the stop": "tool after",
    "work after the end": "behind",
    "stop hit a later run": "stale",
    "later prompt failed": "fails",
}

LEGEND = """\
unpaired     the next request holds a call without its one result, or a result without its call: servers refuse it (400)
broken JSON  it holds half-streamed arguments: strict servers refuse it, OpenAI's own takes it
lost         a tool had finished when the run ended, and the next request does not hold its result
twice        a call was executed twice, over stop, going on and next prompt
model after  a model call began when the loop had turned three times since the stop      tool after   a tool did
behind       a model call or a tool began, or a tool ended, after the run had ended for its caller
stale        the stop ended a later run
fails        a later prompt, given as soon as the run has ended for its caller, gets an error
ms           from the press to the end of the run as its caller sees it. Of a call that blocks the loop, from when it was due

The model gives a piece each ms. Tools: quick 2 ms, slow 12 ms, failing 5 ms, blocking 8 ms (time.sleep); all tools of smolagents
block a thread of their own. Every second case goes on after the stop in the documented way, then each gets one more prompt.
The sub-agent is a tool that awaits another agent. HTTP: the system's own OpenAI client reads an answer of 1.2 s.
Pressed early: between the call and the first turn of the loop; "ran on": as if nobody had pressed.
Approved early: 0 to 16 ms after the question, while an allowed call of 12 ms may still run beside it. AgentScope's documentation
decides after the stream has ended, and its own service holds a lock; its agent alone does not look."""


@dataclass(slots=True)
class Results:
    """Everything about one way."""

    way: Way
    version: str = ""
    stopped: defaultdict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    """By scenario."""
    long: defaultdict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    closed_ms: list[float] = field(default_factory=list[float])
    """From each press to the end of the model's connection; infinite if the answer was read to its end."""
    early: Score = field(default_factory=Score)
    approved: Score = field(default_factory=Score)
    lost_anyway: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By scenario: results that this system loses there without a stop. They are not counted."""

    @property
    def title(self) -> str:
        """The row's name."""
        return f"{self.way.system} {self.version}: {self.way.stop}"


def report(results: Sequence[Results], stops: int) -> Iterator[str]:
    """All lines."""
    yield f"{stops} presses per scenario, at seeded places of the same scripts; a count is the number of presses that did it."
    yield ""
    yield from _table(["", "presses", *(HEADS[kind] for kind in KINDS), "ms, median", "ms, 95 %"], map(_counts, results))
    yield ""
    heads = [
        "",
        "500 ms async tool, ms",
        "500 ms blocking tool, ms",
        "HTTP closed in 50 ms",
        "pressed early: ran on",
        "approved early: twice",
        "unpaired",
    ]
    yield from _table(heads, map(_more, results))
    yield ""
    yield from LEGEND.splitlines()
    yield ""
    for result in results:
        yield from _where(result)


def _counts(result: Results) -> list[str]:
    sum_of = total(result.stopped.values())
    median, late = sum_of.latency()
    return [result.title, str(sum_of.cases), *(str(sum_of.found[kind]) for kind in KINDS), f"{median:.1f}", f"{late:.1f}"]


def _more(result: Results) -> list[str]:
    closed = sum(ms <= CLOSED_WITHIN_MS for ms in result.closed_ms)
    approved = result.approved
    early = [f"{approved.found[kind]} of {approved.cases}" for kind in ("executed twice", "calls and results do not pair")]
    return [
        result.title,
        *(f"{score.latency()[0]:.1f}" for score in result.long.values()),
        f"{closed} of {len(result.closed_ms)}",
        f"{result.early.found['model called after the stop']} of {result.early.cases}",
        *(early if approved.cases else ["n/a", "n/a"]),
    ]


def _where(result: Results) -> Iterator[str]:
    """In which scenarios, and one example of each fault."""
    for kind in KINDS:
        places = [f"{name} {score.found[kind]}" for name, score in result.stopped.items() if score.found[kind]]
        if places:
            example = total(result.stopped.values()).examples[kind]
            yield f"{result.title}: {HEADS[kind]}: {', '.join(places)}; such as {example:.160}"
    for name in SCENARIOS:
        if reason := does_not_apply(result.way, name):
            yield f"{result.title}: {name}: n/a, {reason}"
    for name, keys in result.lost_anyway.items():
        yield f"{result.title}: {name} without a stop: loses {', '.join(keys)}; not counted"


def _table(heads: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'--:|' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
