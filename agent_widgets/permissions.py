"""Rules: which calls are asked about, allowed or denied. Pure: rules and a call in, one verdict out.

A ``PermissionRule`` is about the tool whose exact name is ``tool_name``. Its ``rule_content`` narrows it: a glob
(``fnmatch``: ``*``, ``?``, ``[…]``; upper and lower case differ) on ``argument=value``. It matches a call if it matches one
of its arguments; ``None`` matches every call. The values are those that the function gets, so defaults are filled in: text
as it is, everything else as compact JSON (``dry_run=false``, ``ids=[1,2]``). A glob compares text and knows nothing of
paths: ``path=data/*`` also matches ``data/../secret``.

Deny beats ask beats allow. Where no rule matches, a tool made with ``confirm=True`` asks, and every other runs. A policy says
what becomes of such a question where nobody is there to be asked: it is the rule for ``EVERY`` tool, ``"*"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Literal, cast

import pydantic
import pydantic_core

from agent_widgets.errors import InputError
from agent_widgets.messages import PermissionRule, ToolCallBlock
from agent_widgets.state import valid_arguments
from agent_widgets.tools import Tool

Verdict = Literal["allow", "ask", "deny"]

EVERY = "*"
"""As the ``tool_name`` of a rule: what is done about calls that would be asked about because of ``confirm=True``."""


def checked(permissions: object) -> tuple[PermissionRule, ...]:
    """The rules of ``Agent(permissions=…)``: none for ``"ask"``.

    Raises:
        InputError: neither a policy nor rules, or a rule that could never decide anything.
    """
    if permissions == "ask":
        return ()
    if permissions in ("allow", "deny"):
        return (PermissionRule(EVERY, None, cast("Verdict", permissions)),)
    if not isinstance(permissions, list | tuple):
        raise InputError(f"permissions is {permissions!r:.80}; it must be 'ask', 'allow', 'deny' or a list of PermissionRule.")
    rules = cast("list[object] | tuple[object, ...]", permissions)
    return tuple(_checked_rule(rule) for rule in rules)


def _checked_rule(rule: object) -> PermissionRule:
    if not isinstance(rule, PermissionRule):
        raise InputError(f"permissions: {rule!r:.80} is not a PermissionRule. Write PermissionRule('tool', None, 'deny').")
    if rule.behavior not in ("allow", "ask", "deny"):
        raise InputError(f"permissions: the behavior of {rule!r} must be 'allow', 'ask' or 'deny'.")
    if rule.tool_name == EVERY and rule.rule_content is not None:
        raise InputError(f"permissions: {rule!r} is a policy for every tool, and cannot have a pattern. Name the tool.")
    if rule.rule_content is not None and not set(rule.rule_content) & set("=*?["):
        raise InputError(
            f"permissions: {rule.rule_content!r} can match no call, because a pattern is compared with argument=value. "
            f"Write for example 'table={rule.rule_content}'."
        )
    return rule


def verdict(call: ToolCallBlock, tool: Tool | None, rules: Iterable[PermissionRule]) -> tuple[Verdict, PermissionRule | None]:
    """What is to be done about a call, and the rule that says so; ``None`` when it is the tool's own ``confirm``.

    A call that cannot run (no such tool, broken arguments) is "allow" unless a rule denies it: trying to run it tells the model.
    """
    rules = tuple(rules)
    described = tuple(_described(call, tool))
    matching = [rule for rule in rules if _matches(rule, call.name, described)]
    can_run = tool is not None and valid_arguments(call.input) == call.input
    behaviors: tuple[Verdict, ...] = ("deny", "ask", "allow") if can_run else ("deny",)
    for behavior in behaviors:
        for rule in matching:
            if rule.behavior == behavior:
                return behavior, rule
    if tool is None or not can_run or not tool.confirm:
        return "allow", None
    policy = next((rule for rule in rules if rule.tool_name == EVERY), None)  # a sub-agent's own comes first
    return ("ask", None) if policy is None else (cast("Verdict", policy.behavior), policy)


MAX_PATTERN_VALUE = 60
"""Characters of an argument for which a rule is suggested: a longer one will hardly come again, and cannot be read in a line."""


def suggested(call: ToolCallBlock, tool: Tool | None, asked_by: PermissionRule | None) -> tuple[PermissionRule, ...]:
    """The rules that "always" may store, widest first: every call of the tool, and those with the same first argument.

    None where a rule asks: it would win over the stored one.
    """
    if asked_by is not None:
        return ()
    main = next(_described(call, tool), "")
    is_short = main.isprintable() and 0 < len(main.partition("=")[2]) <= MAX_PATTERN_VALUE
    same = (PermissionRule(call.name, re.sub(r"[*?[]", r"[\g<0>]", main)),) if is_short else ()
    return (PermissionRule(call.name), *same)


def told(rule: PermissionRule) -> str:
    """A rule as a person reads it: ``allow delete_rows(table=staging_*)``."""
    if rule.tool_name == EVERY:
        return f"{rule.behavior} what would be asked"
    return f"{rule.behavior} {rule.tool_name}" + ("" if rule.rule_content is None else f"({rule.rule_content})")


def _matches(rule: PermissionRule, tool_name: str, described: tuple[str, ...]) -> bool:
    if rule.tool_name != tool_name:
        return False
    return rule.rule_content is None or any(fnmatchcase(text, rule.rule_content) for text in described)


def _described(call: ToolCallBlock, tool: Tool | None) -> Iterator[str]:
    """Each argument as ``argument=value``, with the value that the function gets; as the model wrote it where it gets none."""
    values = cast("dict[str, object]", pydantic_core.from_json(valid_arguments(call.input)))
    if tool is not None:
        try:
            made = tool.arguments.model_validate_json(call.input)
        except pydantic.ValidationError:
            pass
        else:
            values = {name: getattr(made, name) for name in type(made).model_fields}
    for name, value in values.items():
        plain = pydantic_core.to_jsonable_python(value, fallback=str)
        yield f"{name}={plain if isinstance(plain, str) else pydantic_core.to_json(plain).decode()}"
