"""What the demo model says: texts only, and how they are put together. No chance, no clock."""

from __future__ import annotations

DISCLAIMER = (
    "*(I am a scripted demo: no model thinks here, and nothing leaves this machine. "
    'For real answers set `OPENAI_API_KEY`, or use `"local"`.)*'
)

MARKER = "scripted demo"
"""What shows that :data:`DISCLAIMER` has been said in a conversation."""

WELCOME = """\
Hello! This card is live: what you read is streamed by a run that has its own thread, so the notebook is free for the next \
cell, and **Stop** works at any moment.

Try one of these:

1. `"Tell me a long story"`, and press **Stop** in the middle. Then say `"go on"`: I know where I was.
2. Give me a tool with `@aw.tool(confirm=True)` and a prompt with a word of its name, for instance \
`"Clean up the orders table"`. I will ask for a call, and you **approve** or **deny** it.
3. `"Think about it first"`, to see thinking apart from the answer.

Whatever happens, the history stays valid, and the next cell goes on from here."""

THOUGHTS = (
    "The person asks me to think first, so let me do that where it can be seen.",
    "What is asked? I look at the last message and take its words one by one.",
    "What do I know? Nothing beyond the words in this conversation, which is worth saying.",
    "What could go wrong? I could pretend to know more than that. A script should not.",
    "Is there a tool that would help? If one were offered whose name fits, I would ask for it.",
    "How long should the answer be? Thinking was long, so the answer may be short.",
    "One more check: is this the moment to be stopped? Any moment is. A stopped thought is thrown away, and the answer kept.",
    "Good. I have gone through it in order, and I can answer now.",
)

AFTER_THINKING = (
    "I thought about “{prompt}” in {count} steps; they are folded above this text. Thinking is shown to you and never sent "
    "back to a model, so the next turn does not carry it."
)

_PLACES = (
    ("the harbour", "gulls sat on every post"),
    ("the lamp room", "the glass had to be polished twice"),
    ("the lower stairs", "one step in nine was loose"),
    ("the boat house", "the old rope smelled of tar"),
    ("the north rocks", "seals slept in a row"),
    ("the little garden", "the beans had climbed the fence"),
    ("the radio desk", "somebody far away read out numbers"),
)
_GUESTS = ("a tired pilot", "two geologists", "a boy with a kite", "the woman who mends nets", "a retired conductor")
_QUESTIONS = (
    "why the light turns when it could simply shine",
    "whether a ship can be seen before it is there",
    "how one knows that a storm has decided to stay",
    "who counts the waves at night",
)
_ANSWERS = (
    "Because a light that never stops tells nobody where it is",
    "Because what can be interrupted can also be trusted",
    "Because the log is the truth, and the rest is only weather",
    "Because a short note written at once is worth more than a long one tomorrow",
    "Because patience is only a slow way of paying attention",
    "Because somebody has to write down what happened",
)
_WEATHERS = ("clear", "fog", "rain", "wind from the west", "frost", "thunder far off")
_WORKS = ("oiled the gears", "wound the clock", "filled the lamp", "painted the door", "repaired the bell", "sorted the charts")

_DAYS = 28
_LIST_DAY, _CODE_DAY = 3, 5


def story() -> str:
    """A long story in Markdown, with headings, lists, a code block and tables: more than a minute at 60 tokens a second."""
    opening = (
        "# The keeper's log\n\nThis is a long answer, made to be stopped: press **Stop** whenever you like, and say “go on” "
        f"afterwards.\n\n{DISCLAIMER}\n"
    )
    return "\n".join([opening, *(_day(day) for day in range(1, _DAYS + 1)), _ending()])


def _day(day: int) -> str:
    place, detail = _PLACES[day * 3 % len(_PLACES)]
    guest, question = _GUESTS[day * 2 % len(_GUESTS)], _QUESTIONS[day % len(_QUESTIONS)]
    answer, weather = _ANSWERS[day * 5 % len(_ANSWERS)], _WEATHERS[day * 7 % len(_WEATHERS)]
    first, second = _WORKS[day % len(_WORKS)], _WORKS[(day + 2) % len(_WORKS)]
    visible = 20 - day * 7 % 13
    text = (
        f"## Day {day}: {weather}\n\n"
        f"In the morning I went down to {place}, where {detail}. I {first}, and before noon I also {second}, which is "
        f"not much, but it is what a day like this allows. From the gallery one could see about {visible} miles of water.\n\n"
        f"In the afternoon {guest} came up and asked {question}. “{answer},” I said, and wrote it down, so that whoever reads "
        f"this log on another day knows that it was asked on day {day} and that it was answered.\n"
    )
    if day % 7 == _LIST_DAY:
        text += "\nLeft to do:\n\n" + "".join(f"- {work}, by day {day + n}\n" for n, work in enumerate(_LEFT_TO_DO, 1))
    if day % 7 == _CODE_DAY:
        text += f"\nThe rule for the lamp, as it hangs beside the stairs:\n\n```python\n{_CODE}```\n"
    if day % 7 == 0:
        text += "\n| day | weather | miles |\n|---:|---|---:|\n"
        text += "".join(f"| {d} | {_WEATHERS[d * 7 % len(_WEATHERS)]} | {20 - d * 7 % 13} |\n" for d in range(day - 6, day + 1))
    return text


_LEFT_TO_DO = ("look at the loose step", "count the candles", "write to the harbour master")
_CODE = """\
def lamp(hour: int, fog: bool) -> str:
    if fog or hour < 7 or hour > 18:
        return "on"
    return "off"
"""


def _ending() -> str:
    return (
        "## The end\n\nOn the last evening nobody came, and nothing was asked. The light went round, as it had been written "
        "down that it would, and the log was complete.\n"
    )


def counting(last: int) -> str:
    """The numbers from 1 to ``last``, in Markdown, ten in a line."""
    lines = [", ".join(str(n) for n in range(start, min(start + 10, last + 1))) for start in range(1, last + 1, 10)]
    return f"# Counting to {last}\n\n{DISCLAIMER}\n\n" + ",\n".join(lines) + ".\n\nDone."
