"""What pages ask for, carried out on the runs of one card: stop, decide, answer, steer, send, resume.

On the loop that carries the runs. What was refused, or came too late, is returned as a sentence for the page, or raised as an
``AgentWidgetsError``; then nothing was done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent_widgets.backends import Inputs
from agent_widgets.decisions import Decision
from agent_widgets.errors import InputError
from agent_widgets.inbox import Note
from agent_widgets.messages import PermissionRule
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.wire import AnswerCall, Decide, DecideAll, Forget, Resume, Rule, Send, Steer, Stop, Withdraw

REMEMBERED = 1000

Click = Stop | Decide | DecideAll | AnswerCall | Steer | Withdraw | Forget | Send | Resume


class Clicks:
    """Carries out what the pages of one card ask for."""

    def __init__(self, session: Session, runs: list[Run], start: Callable[[Inputs], Run]) -> None:
        """Make it.

        Args:
            session: Whose rules may be taken back.
            runs: Those of the card, the last one newest; the card's own list, which grows.
            start: Starts a run on the card, for a typed prompt or to go on.
        """
        self._session = session
        self._runs = runs
        self._start = start
        self._heard: OrderedDict[str, None] = OrderedDict()

    def is_new(self, command_id: str) -> bool:
        """Whether this command comes for the first time: each comes by the early tap and by the ordinary handler."""
        if command_id in self._heard:
            return False
        self._heard[command_id] = None
        if len(self._heard) > REMEMBERED:
            self._heard.popitem(last=False)
        return True

    def carry_out(self, click: Click) -> str:
        """Do it. What is returned is for the page: why nothing was done, or nothing to say."""
        match click:
            case Stop():
                run = self._run_named(click.run_id)
                run.stop(click.after, click.reason, call_id=click.call_id or None, source="user")
            case Decide() | DecideAll():
                return self._decide(click)
            case AnswerCall():
                return self._run_named(click.run_id).take_answer(click.call_id, click.text)
            case Steer():
                return self._steer(click)
            case Withdraw():
                return self._run_named(click.run_id).take_back(click.steer_id)
            case Forget():
                return "" if self._session.forget_rule(_rule_of(click.rule)) else "This rule had been taken back already."
            case Send():
                self._start(click.text)
            case Resume():
                return self._resume(click)
        return ""

    def _decide(self, click: Decide | DecideAll) -> str:
        run, confirmed = self._run_named(click.run_id), click.decision == "approve"
        if isinstance(click, Decide):
            rule = _rule_of(click.rule) if click.rule else False
            decision = Decision(confirmed=confirmed, reason=click.reason, arguments=click.arguments, always=rule)
            return run.decide(click.call_id, replace(decision, seen=click.fingerprint))
        decide = partial(run.decide_all, click.calls, Decision(confirmed=confirmed, reason=click.reason))
        return run.then_stop(decide, click.reason) if click.stop else decide()

    def _steer(self, click: Steer) -> str:
        run = self._run_named(click.run_id)
        if run.is_over:
            return "Not sent: this run has ended."
        run.add_note(Note(id=click.id, text=click.text))
        return ""

    def _resume(self, click: Resume) -> str:
        run = self._run_named(click.run_id)
        if not run.is_over or run is not self._runs[-1]:
            return "Only the last run of a card can be continued, and only when it has ended."
        if run is not self._session.runs[-1]:
            return "The conversation has gone on since, so nothing was done. Ask in a new cell."
        self._start(run.inputs_to_resume)
        return ""

    def _run_named(self, run_id: str) -> Run:
        for run in self._runs:
            if run.run_id == run_id:
                return run
        raise InputError("This card does not show that run; nothing was done.")


def _rule_of(rule: Rule) -> PermissionRule:
    return PermissionRule(rule.tool_name, rule.rule_content)
