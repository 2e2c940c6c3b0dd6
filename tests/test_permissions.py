"""Rules: which match a call, which of them wins, and what becomes of the call."""

from __future__ import annotations

import threading
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.errors import InputError
from agent_widgets.messages import PermissionBehavior, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call
from agent_widgets.permissions import checked, suggested, told, verdict
from agent_widgets.state import AgentState
from agent_widgets.tools import tool
from tests.validator import assert_valid

done: list[str] = []
"""What tools have done, in order; emptied before each test."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


class Mode(Enum):
    DRY = "dry"


@tool(confirm=True)
async def delete_rows(table: str = "prod", limit: int = 10, *, dry_run: bool = False, mode: Mode = Mode.DRY) -> str:
    """Delete some rows of TABLE."""
    done.append(f"delete {table}")
    return f"deleted from {table} {limit} {dry_run} {mode}"


@tool
async def read_rows(table: str) -> str:
    """Read the rows of TABLE."""
    done.append(f"read {table}")
    return f"rows of {table}"


def rule(content: str | None, behavior: PermissionBehavior, name: str = "delete_rows") -> PermissionRule:
    return PermissionRule(name, content, behavior)


def decided(arguments: str, *rules: PermissionRule, name: str = "delete_rows") -> str:
    tools = {"delete_rows": delete_rows, "read_rows": read_rows}
    return verdict(ToolCallBlock(id="c", name=name, input=arguments), tools.get(name), rules)[0]


def agent_of(*script: Turn, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(script))
    return Agent(model, tools=[delete_rows, read_rows], **options), model


def results(agent: Agent) -> dict[str, tuple[str, str]]:
    blocks = [block for message in agent.state.context for block in message.content]
    return {block.id: (block.state, block.text()) for block in blocks if isinstance(block, ToolResultBlock)}


def decision(agent: Agent, *, arguments: str | None = None, rules: tuple[PermissionRule, ...] = ()) -> ev.UserConfirmResultEvent:
    (waits,) = agent.state.waiting()
    chosen = waits if arguments is None else replace(waits, input=arguments)
    result = ev.ConfirmResult(confirmed=True, tool_call=chosen, rules=rules)
    return ev.UserConfirmResultEvent(reply_id=agent.state.reply_id, confirm_results=(result,))


DELETE = call("delete_rows", {"table": "prod_orders"})
READ = call("read_rows", {"table": "prod_orders"})

# -- matching -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "arguments", "matches"),
    [
        (None, "{}", True),
        ("table=staging_*", '{"table": "staging_a"}', True),
        ("table=staging_*", '{"table": "prod"}', False),
        ("table=staging_*", '{"table": "x", "where": "table=staging_a"}', False),
        ("table=STAGING_*", '{"table": "staging_a"}', False),
        ("table=prod", "{}", True),
        ("table=a*z", '{"table": "a\\nz"}', True),
        ("limit=1?", "{}", True),
        ("limit=10", '{"limit": "10"}', True),
        ("limit=1*", '{"limit": 20}', False),
        ("dry_run=false", "{}", True),
        ("dry_run=[tf]*", '{"dry_run": true}', True),
        ("mode=dry", "{}", True),
        ("*=prod*", '{"table": "prod_orders"}', True),
        ("*", "{}", True),
        ("prod", "{}", False),
    ],
)
def test_a_pattern_is_compared_with_each_argument_as_the_function_gets_it(
    pattern: str | None, arguments: str, *, matches: bool
) -> None:
    assert decided(arguments, rule(pattern, "deny")) == ("deny" if matches else "ask")


def test_a_value_that_is_no_text_is_compared_as_compact_json() -> None:
    @tool
    def pick(ids: list[int], at: dict[str, str | None]) -> str:
        """Pick some things."""
        return f"{ids}{at}"

    asked = ToolCallBlock(id="c", name="pick", input='{"ids": [1, 2], "at": {"a": null}}')
    assert verdict(asked, pick, [rule("ids=[[]1,2]", "deny", "pick")])[0] == "deny"
    assert verdict(asked, pick, [rule('at={"a":null}', "deny", "pick")])[0] == "deny"


@pytest.mark.parametrize(
    ("behaviors", "wins"),
    [
        (["allow", "ask", "deny"], "deny"),
        (["deny", "allow"], "deny"),
        (["allow", "ask"], "ask"),
        (["ask", "allow", "allow"], "ask"),
        (["allow"], "allow"),
        (["passthrough"], "ask"),
        ([], "ask"),
    ],
)
def test_deny_beats_ask_beats_allow_whatever_their_order(behaviors: list[PermissionBehavior], wins: str) -> None:
    assert decided("{}", *[rule(None, behavior) for behavior in behaviors]) == wins
    assert decided("{}", *[rule("table=*", behavior) for behavior in reversed(behaviors)]) == wins


def test_without_a_rule_the_tool_says_whether_it_asks() -> None:
    other = PermissionRule("other", None, "deny")
    assert decided("{}", other) == "ask"
    assert decided('{"table": "a"}', other, name="read_rows") == "allow"


@pytest.mark.parametrize(("name", "arguments"), [("nothing", "{}"), ("delete_rows", '{"table": "a'), ("delete_rows", "[]")])
def test_a_call_that_cannot_run_is_not_asked_about_but_may_be_denied(name: str, arguments: str) -> None:
    assert decided(arguments, rule(None, "ask", name), name=name) == "allow"
    assert decided(arguments, rule(None, "deny", name), name=name) == "deny"


def test_arguments_that_do_not_fit_are_compared_as_they_were_written() -> None:
    assert decided('{"table": "prod", "more": 1}', rule("more=1", "deny")) == "deny"
    assert decided('{"limit": "many"}', rule("limit=10", "allow")) == "ask"


def test_a_rule_that_asks_suggests_none_because_it_would_win_over_it() -> None:
    asked = ToolCallBlock(id="c", name="delete_rows")
    assert suggested(asked, delete_rows, None) == (PermissionRule("delete_rows"), PermissionRule("delete_rows", "table=prod"))
    assert suggested(asked, delete_rows, rule(None, "ask")) == ()


def test_a_rule_is_told_in_a_line() -> None:
    assert told(rule(None, "deny")) == "deny delete_rows"
    assert told(rule("table=prod*", "deny")) == "deny delete_rows(table=prod*)"


# -- what an agent takes --------------------------------------------------------------------------------------------


def test_permissions_are_ask_or_rules() -> None:
    assert checked("ask") == checked(()) == ()
    assert checked([rule(None, "deny")]) == (rule(None, "deny"),)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("never", "must be 'ask', 'allow', 'deny' or a list of PermissionRule"),
        (rule(None, "deny"), "must be 'ask', 'allow', 'deny' or a list of PermissionRule"),
        (["delete_rows"], "'delete_rows' is not a PermissionRule"),
        ([rule(None, "passthrough")], "must be 'allow', 'ask' or 'deny'"),
        ([rule("prod", "deny")], r"'prod' can match no call.*'table=prod'"),
    ],
)
def test_permissions_that_could_never_decide_are_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Agent(ScriptedModel([]), permissions=wrong)


# -- what becomes of a call -----------------------------------------------------------------------------------------


async def test_a_denied_call_is_never_executed_and_the_model_reads_agentscopes_words() -> None:
    agent, model = agent_of([DELETE, READ], "ok", permissions=[rule("table=prod*", "deny")])
    assert (await agent.reply("go")).text == "ok"
    assert done == ["read prod_orders"]
    assert results(agent) == {
        "call_1": ("denied", "Permission to use delete_rows has been denied"),
        "call_2": ("success", "rows of prod_orders"),
    }
    (denied,) = [b for b in agent.state.context[-1].content if isinstance(b, ToolResultBlock) and b.state == "denied"]
    assert denied.metadata == {"reason": "rule: deny delete_rows(table=prod*)"}
    assert_valid(model.requests[1].messages)


async def test_the_events_of_a_denied_call_are_a_whole_result_without_a_question() -> None:
    agent, _ = agent_of(DELETE, "ok", permissions=(rule(None, "deny"),))
    seen = [event.type async for event in agent.reply_stream("go")]
    first = seen.index("MODEL_CALL_END") + 1
    assert seen[first : first + 3] == ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"]
    assert "REQUIRE_USER_CONFIRM" not in seen


async def test_an_ask_rule_asks_about_a_tool_that_would_not_ask() -> None:
    agent, _ = agent_of([READ, call("read_rows", {"table": "a"})], "ok", permissions=[rule("table=prod*", "ask", "read_rows")])
    await agent.reply("go")
    (waits,) = agent.state.waiting()
    assert (waits.id, waits.suggested_rules, done) == ("call_1", (), ["read a"])
    assert (await agent.reply(decision(agent))).text == "ok"
    assert done == ["read a", "read prod_orders"]


async def test_an_allow_rule_lets_some_calls_run_and_the_others_ask() -> None:
    script = [call("delete_rows", {"table": "staging_a"}), DELETE]
    agent, _ = agent_of(script, permissions=[rule("table=staging_*", "allow")])
    await agent.reply("go")
    assert (done, [waits.id for waits in agent.state.waiting()]) == (["delete staging_a"], ["call_2"])


async def test_a_deny_rule_beats_an_always_that_is_in_the_state() -> None:
    state = AgentState(rules=(PermissionRule("delete_rows"),))
    agent, _ = agent_of(
        [DELETE, call("delete_rows", {"table": "a"})], "ok", state=state, permissions=[rule("table=prod*", "deny")]
    )
    await agent.reply("go")
    assert done == ["delete a"]


async def test_a_deny_rule_in_the_state_counts_as_well() -> None:
    agent, _ = agent_of(READ, "ok", state=AgentState(rules=(rule(None, "deny", "read_rows"),)))
    await agent.reply("go")
    assert (done, results(agent)["call_1"][0]) == ([], "denied")


async def test_arguments_that_were_edited_into_a_denied_call_are_denied_whoever_approved_them() -> None:
    agent, model = agent_of(call("delete_rows", {"table": "a"}), "ok", permissions=[rule("table=prod*", "deny")])
    await agent.reply("go")
    assert (await agent.reply(decision(agent, arguments='{"table": "prod"}'))).text == "ok"
    assert (done, results(agent)["call_1"][0]) == ([], "denied")
    assert_valid(model.requests[1].messages)


# -- always, and taking it back -------------------------------------------------------------------------------------


async def test_an_always_can_be_taken_back_and_the_next_call_asks_again() -> None:
    agent, _ = agent_of(DELETE, "ok", DELETE, "ok", DELETE)
    await agent.reply("go")
    (waits,) = agent.state.waiting()
    await agent.reply(decision(agent, rules=waits.suggested_rules[:1]))
    await agent.reply("more")
    assert (len(done), agent.state.rules) == (2, (PermissionRule("delete_rows"),))
    assert agent.forget_rule(agent.state.rules[0]) == 1
    assert (agent.state.rules, agent.forget_rule(PermissionRule("delete_rows"))) == ((), 0)
    await agent.reply("more")
    assert (len(done), len(agent.state.waiting())) == (2, 1)


def test_the_rules_of_a_tool_can_be_taken_back_by_its_name() -> None:
    rules = (rule("table=a", "allow"), rule(None, "deny", "read_rows"), rule("table=b", "allow"))
    agent, _ = agent_of(state=AgentState(rules=rules))
    assert agent.forget_rule("delete_rows") == 2
    assert agent.state.rules == (rules[1],)
    assert agent.forget_rule("nothing") == 0


async def test_the_same_always_twice_is_one_rule() -> None:
    agent, _ = agent_of(DELETE, "ok", state=AgentState(rules=(rule("table=a", "allow"),)))
    await agent.reply("go")
    await agent.reply(decision(agent, rules=(rule("table=a", "allow"), PermissionRule("delete_rows"))))
    assert agent.state.rules == (rule("table=a", "allow"), PermissionRule("delete_rows"))


async def test_a_rule_taken_back_from_another_thread_while_the_agent_works_loses_nothing() -> None:
    agent, _ = agent_of(*[READ] * 15, "ok", state=AgentState(rules=tuple(rule(f"limit={n}", "allow") for n in range(200))))
    taking = threading.Thread(target=lambda: [agent.forget_rule(rule(f"limit={n}", "allow")) for n in range(200)])
    taking.start()
    reply = await agent.reply("go")
    taking.join()
    assert (reply.text, len(done), agent.state.rules, agent.state.check()) == ("ok", 15, (), ())


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ('{"table": "orders", "limit": 3}', "table=orders"),
        ("{}", "table=prod"),
        ('{"table": "a*[b]?"}', "table=a[*][[]b][?]"),
        ('{"table": ""}', None),
        ('{"table": "two\\nlines"}', None),
        ('{"table": "a\\u202eb"}', None),
        ('{"table": "%s"}' % ("x" * 61), None),
    ],
)
def test_a_rule_for_the_same_first_argument_is_suggested_where_it_can_be_read_and_it_matches_nothing_else(
    arguments: str, pattern: str | None
) -> None:
    asked = ToolCallBlock(id="c", name="delete_rows", input=arguments)
    narrow = suggested(asked, delete_rows, None)[1:]
    assert narrow == (() if pattern is None else (PermissionRule("delete_rows", pattern),))
    if narrow:
        assert decided(arguments, *narrow) == "allow"
        assert decided('{"table": "ax[b]yz"}', *narrow) == "ask"


def test_for_a_tool_without_arguments_only_the_wide_rule_is_suggested() -> None:
    @tool(confirm=True)
    def reset() -> str:
        """Reset everything."""
        return "done"

    assert suggested(ToolCallBlock(id="c", name="reset", input="{}"), reset, None) == (PermissionRule("reset"),)


async def test_watchers_hear_of_every_change_of_the_rules_until_they_leave() -> None:
    agent, _ = agent_of(DELETE, "ok")
    heard: list[int] = []
    leave = agent.watch_rules(lambda: heard.append(len(agent.rules)))
    await agent.reply("go")
    assert heard == []
    await agent.reply(decision(agent, rules=agent.state.waiting()[0].suggested_rules))
    agent.forget_rule("delete_rows")
    agent.forget_rule("delete_rows")
    assert heard == [2, 0]
    leave()
    agent.load(Agent("demo", state=AgentState(rules=(PermissionRule("delete_rows"),))).dump())
    assert (heard, len(agent.rules)) == ([2, 0], 1)


# -- a policy, where nobody is there to be asked ----------------------------------------------------------------------


async def test_a_policy_allows_or_denies_what_would_be_asked_and_nothing_else() -> None:
    both = [call("delete_rows", {"table": "t"}), call("read_rows", {"table": "t"})]
    agent, _ = agent_of(both, "done", permissions="allow")
    assert (await agent.reply("go")).text == "done"
    assert sorted(done) == ["delete t", "read t"]

    done.clear()
    agent, model = agent_of(both, "denied", permissions="deny")
    assert (await agent.reply("go")).text == "denied"
    assert done == ["read t"]
    results = {b.name: b for m in agent.state.context for b in m.content if isinstance(b, ToolResultBlock)}
    assert results["delete_rows"].state == "denied"
    assert results["delete_rows"].metadata == {"reason": "rule: deny what would be asked"}
    assert_valid(model.requests[1].messages)


async def test_a_policy_comes_after_every_rule_about_the_tool() -> None:
    policy = PermissionRule("*", None, "deny")
    assert decided('{"table": "a"}', policy) == "deny"
    assert decided('{"table": "a"}', policy, rule("table=a", "allow")) == "allow"
    assert decided('{"table": "a"}', policy, rule(None, "ask")) == "ask"
    assert decided('{"table": "a"}', policy, name="read_rows") == "allow"
    assert decided('{"table": "a"}', PermissionRule("*", None, "allow"), rule(None, "deny")) == "deny"


async def test_a_policy_holds_for_sub_agents_unless_they_have_their_own() -> None:
    policies: tuple[tuple[Any, list[str]], ...] = (("ask", []), ("allow", ["delete t"]))
    for own, expected in policies:
        done.clear()
        child = Agent(
            ScriptedModel([[call("delete_rows", {"table": "t"})], "ended"]), name="child", tools=[delete_rows], permissions=own
        )
        parent = Agent(ScriptedModel([[call("child", {"task": "clean"})], "all"]), tools=[child.as_tool()], permissions="deny")
        assert (await parent.reply("go")).text.endswith("all")
        assert done == expected


@pytest.mark.parametrize("given", ["no", ("*",), [PermissionRule("*", "table=a", "deny")]])
def test_what_is_no_policy_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="permissions"):
        checked(given)
