"""What a person can decide on the card and while it works, in real JupyterLab, clicked as a person would."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.jlab import Lab, Notebook
from tests.browser.test_card import ASKS, button, card, ended, opened, theme_of

EXECUTED = "print([m['content'] for m in deleter.model.requests[-1].messages if m['role'] == 'tool'], deleter.rules)"
pytestmark = pytest.mark.timeout(300)  # as in test_card

TWO_ASK = """\
done = []
@aw.tool(confirm=True)
async def drop(table: str) -> str:
    "Drop TABLE."
    done.append(table)
    return f"{table} is gone"

dropper = aw.Agent(ScriptedModel([[*(call("drop", {"table": name}) for name in ("orders", "drafts", "users"))], [say("Done.")]]),
                   tools=[drop])
run = aw.chat(dropper, "Drop them")"""
STEERED = """\
import threading
from agent_widgets.models.scripted import wait
go = threading.Event()
story = [say([f"word{n} " for n in range(60)]), wait(go)]
steered = aw.Agent(ScriptedModel([story, [say("As you wish.")]], tokens_per_second=15))
run = aw.chat(steered, "Tell me a story")"""


@pytest.fixture(scope="module", params=["Light", "Dark"])
def themed(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Lab]:
    with Lab(browser, theme=f"JupyterLab {request.param}") as lab:  # pyright: ignore[reportArgumentType]
        yield lab


def waits(notebook: Notebook, index: int) -> Locator:
    shown = card(notebook, index)
    expect(shown.locator(".aw-chip")).to_have_text(re.compile("waiting for"), timeout=10_000)
    return shown


def height(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["height"]


def test_edited_arguments_are_refused_at_the_form_until_they_fit_and_then_run(themed: Lab) -> None:
    notebook = opened(themed, "edit", ASKS, EXECUTED, "print(deleter.model.requests[-1].messages[-2])")
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    notebook.screenshot(f"edit-before-{theme_of(notebook)}", shown)
    button(shown, "Edit").click()
    form = shown.get_by_label("Arguments of delete_rows, as JSON")
    expect(form).to_be_focused()
    expect(form).to_have_value(re.compile('"table": "orders"'))
    form.fill('{"table": ')
    button(shown, "Approve").click()
    expect(shown).to_contain_text("This is not JSON yet")
    form.fill('{"table": "drafts"}')
    button(shown, "Approve").click()
    expect(shown.get_by_role("alert")).to_contain_text("where: Field required")
    expect(form).to_have_value('{"table": "drafts"}')
    expect(shown.locator(".aw-chip")).to_have_text("waiting for you")
    notebook.screenshot(f"edit-refused-{theme_of(notebook)}", shown)
    form.fill('{"table": "drafts", "where": "1 = 1"}')
    button(shown, "Approve").click()
    ended(notebook, 1, "done")
    expect(shown).to_contain_text('Changed by a person. The model had asked for (table="orders", where="status = \'cancelled\'")')
    notebook.screenshot(f"edit-done-{theme_of(notebook)}", shown)
    notebook.run_cell(2)
    notebook.wait_text(2, "You had asked for:")
    notebook.run_cell(3)
    notebook.wait_text(3, '"drafts"')
    assert themed.errors() == []
    notebook.save()
    notebook.reload()
    expect(card(notebook, 1)).to_contain_text("Changed by a person.", timeout=20_000)
    notebook.close()


def test_always_allow_is_shown_asks_no_more_and_can_be_taken_back(themed: Lab) -> None:
    agent = (
        "ask = call('delete_rows', {'table': 'orders', 'where': '1'})\n"
        "deleter = aw.Agent(ScriptedModel([[ask], [say('one')], [ask], [say('two')], [ask]]), tools=[delete_rows])\n"
        "run = aw.chat(deleter, 'Clean up')"
    )
    notebook = opened(
        themed, "always", agent, "await aw.chat(deleter, 'Again'); print(deleter.rules)", "r = aw.chat(deleter, 'And again')"
    )
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    shown.get_by_label("Ask again next time?").select_option(label="always delete_rows with table=orders")
    button(shown, "Always allow").click()
    ended(notebook, 1, "done")
    expect(shown).to_contain_text("Allowed without asking:")
    expect(shown.locator(".aw-rule")).to_have_text("delete_rows(table=orders)✕")
    notebook.screenshot(f"always-{theme_of(notebook)}", shown)
    notebook.run_cell(2)
    ended(notebook, 2, "done")
    notebook.wait_text(2, "rule_content='table=orders'")
    second = card(notebook, 2)
    button(second, "Ask again about delete_rows(table=orders)").click()
    expect(second.locator(".aw-rules")).to_be_hidden()
    expect(shown.locator(".aw-rules")).to_be_hidden()  # all cards of the conversation know
    notebook.run_cell(3)
    third = waits(notebook, 3)
    button(third, "Deny and stop").click()
    ended(notebook, 3, "stopped")
    expect(third).to_contain_text("Denied")
    expect(third).to_contain_text("Stopped by you")
    assert themed.errors() == []
    notebook.close()


def test_approve_all_is_one_press_and_a_stale_view_executes_nothing(lab: Lab) -> None:
    again = "aw.chat(dropper)"
    notebook = opened(lab, "together", TWO_ASK, again, "print(done, run.status)")
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    notebook.screenshot("together", shown)
    notebook.run_cell(2)
    other = waits(notebook, 2)
    # The second card still shows three calls when its button is pressed: the message that tells it of the denial is held back.
    stale = other.get_by_role("button", name="Approve all (3)")
    expect(stale).to_be_visible()
    notebook.page.evaluate(
        """() => { const cards = document.querySelectorAll('.aw-card');
                   const deny = [...cards[0].querySelectorAll('.aw-decision button')].find(b => b.textContent === 'Deny');
                   const all = [...cards[1].querySelectorAll('button')].find(b => b.textContent === 'Approve all (3)');
                   deny.click(); all.click(); }"""
    )
    expect(other.locator(".aw-fault, .aw-notice").filter(has_text="nothing was executed").first).to_be_visible()
    notebook.run_cell(3)
    notebook.wait_text(3, "[] paused")
    button(other, "Approve all (2)").click()
    ended(notebook, 1, "done")
    ended(notebook, 2, "done")
    notebook.run_cell(3)
    notebook.wait_text(3, "['drafts', 'users'] completed")
    assert lab.errors() == []
    notebook.close()


def test_deny_all_and_stop(lab: Lab) -> None:
    notebook = opened(lab, "deny-all", TWO_ASK, "print(done, run.status, dropper.state.check())")
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    button(shown, "Deny all and stop").click()
    ended(notebook, 1, "stopped")
    expect(shown.locator('.aw-tool[data-look="denied"]')).to_have_count(3)
    notebook.run_cell(2)
    notebook.wait_text(2, "[] interrupted ()")
    notebook.close()


def test_a_note_waits_is_withdrawn_and_enters_as_a_line_of_the_person(themed: Lab) -> None:
    said = "print([m['content'] for m in steered.model.requests[-1].messages])"
    notebook = opened(themed, "steer", STEERED, said, "go.set()")
    notebook.run_cell(1)
    shown = card(notebook, 1)
    box = shown.get_by_label("Add something for the next step")
    expect(shown).to_contain_text("word3 ")
    assert notebook.page.evaluate("document.activeElement.closest('.aw-card')") is None
    box.fill("in prose")
    notebook.page.keyboard.press("Enter")
    box.fill("and in French, please")
    notebook.page.keyboard.press("Enter")
    expect(box).to_have_value("")
    expect(box).to_be_focused()
    expect(shown.locator(".aw-unread")).to_have_count(2)
    notebook.screenshot(f"steer-{theme_of(notebook)}", shown)
    button(shown, "Withdraw: in prose").click()
    expect(shown.locator(".aw-unread")).to_have_count(1)
    notebook.run_cell(3)
    ended(notebook, 1, "done")
    expect(shown.locator(".aw-unread")).to_have_count(0)
    expect(shown.locator(".aw-blocks blockquote")).to_have_text("and in French, please")
    expect(shown).to_contain_text("As you wish.")
    notebook.screenshot(f"steered-{theme_of(notebook)}", shown)
    notebook.run_cell(2)
    notebook.wait_text(2, "'and in French, please']")
    assert themed.errors() == []
    notebook.close()


def test_a_note_of_a_run_that_is_stopped_comes_back_into_the_box_and_the_card_does_not_jump(lab: Lab) -> None:
    notebook = opened(lab, "unsent", STEERED.replace("range(60)", "range(3000)").replace("=15", "=400"))
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown).to_contain_text("word900 ", timeout=20_000)  # taller than the body may be
    box = shown.get_by_label("Add something for the next step")
    box.fill("shorter!")
    notebook.page.keyboard.press("Enter")
    expect(shown.locator(".aw-unread")).to_have_count(1)
    tall = height(shown)
    shown.get_by_role("button", name="Stop", exact=True).click()
    ended(notebook, 1, "stopped")
    expect(shown).to_contain_text("Not sent: “shorter!”")
    back = shown.get_by_label("Prompt")
    expect(back).to_have_value("shorter!")
    assert abs(height(shown) - tall) <= 1
    notebook.screenshot("unsent", shown)
    button(shown, "Send").click()
    expect(shown).to_contain_text("As you wish.")
    ended(notebook, 1, "done")
    notebook.page.locator(".jp-Notebook").first.click(position={"x": 5, "y": 5})
    expect(shown.locator(".aw-composer")).to_be_hidden()
    assert abs(height(shown) - tall) <= 1
    notebook.close()


def test_the_result_of_an_outside_call_is_given_on_the_card(themed: Lab) -> None:
    cell = """\
@aw.tool(external=True)
def ask_colleague(question: str) -> str:
    "Ask a colleague a QUESTION."
asker = aw.Agent(ScriptedModel([[call("ask_colleague", {"question": "Is it safe?"})], [say("Thanks.")]]), tools=[ask_colleague])
run = aw.chat(asker, "Is it?")"""
    notebook = opened(themed, "answer", cell, "print(asker.model.requests[-1].messages[-1]['content'])")
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    notebook.screenshot(f"answer-{theme_of(notebook)}", shown)
    shown.get_by_label("Result of ask_colleague").fill("Yes, on Tuesdays.")
    notebook.page.keyboard.press("Enter")
    ended(notebook, 1, "done")
    notebook.run_cell(2)
    notebook.wait_text(2, "Yes, on Tuesdays.")
    notebook.close()


def test_everything_can_be_reached_by_tab_in_the_order_of_reading(lab: Lab) -> None:
    notebook = opened(lab, "tab", ASKS)
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    shown.get_by_role("button", name="Stop", exact=True).focus()
    name_of = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    order: list[str] = []
    for _ in range(9):
        notebook.page.keyboard.press("Tab")
        order.append(notebook.page.evaluate(name_of))
    names = ["Transcript", "Approve", "Edit", "Ask again next time?", "Deny", "Deny and stop"]
    assert [name for name in order if name in names] == names, order
    assert order[-1] == "Add something for the next step", order
    notebook.close()


def test_in_a_narrow_page_nothing_is_cut(browser: Browser) -> None:
    with Lab(browser) as lab:
        notebook = opened(lab, "narrow", ASKS, TWO_ASK.replace("run =", "other ="))
        notebook.run_cell(1)
        waits(notebook, 1)
        notebook.run_cell(2)
        waits(notebook, 2)
        notebook.page.set_viewport_size({"width": 920, "height": 1500})
        for index in (1, 2):
            shown = card(notebook, index)
            shown.evaluate("(card) => { card.style.width = '400px'; }")
            button(shown, "Edit").first.click()
            wide = shown.evaluate(
                "(card) => [card.querySelector('.aw-body').scrollWidth, card.querySelector('.aw-body').clientWidth]"
            )
            assert wide[0] <= wide[1], wide
            notebook.screenshot(f"narrow-{index}", shown)
        notebook.close()


LIMITED = """\
@aw.tool(external=True)
async def ask_person(question: str) -> str:
    "Ask a person who is somewhere else."

ask = call("delete_rows", {"table": "orders", "where": "1 = 1"})
lunch = call("ask_person", {"question": "Lunch?"})
deleter = aw.Agent(ScriptedModel([[ask, lunch], [say("As you say.")]]), tools=[delete_rows, ask_person])
run = aw.chat(deleter, "Clean up", answer_within=45)"""


def test_a_question_counts_down_also_after_a_reload_and_is_given_up(themed: Lab) -> None:
    notebook = opened(themed, "limit", LIMITED)
    notebook.run_cell(1)
    shown = waits(notebook, 1)
    limits = shown.locator(".aw-limit")
    expect(limits).to_have_text([re.compile(r"it is denied in \d+ s, at"), re.compile(r"it is given up in \d+ s, at")])
    at = [text.split(", at ")[1] for text in limits.all_inner_texts()]
    notebook.screenshot(f"limit-{theme_of(notebook)}", shown)
    notebook.save()
    notebook.reload()
    expect(limits).to_have_text([re.compile(f"denied in .*{at[0]}"), re.compile(f"given up in .*{at[1]}")], timeout=20_000)
    expect(shown.locator(".aw-chip")).to_have_text("done", timeout=60_000)
    expect(shown).to_contain_text("Denied: “Nobody answered within 45 s.”")
    expect(shown).to_contain_text("Nobody answered within 45 s. There is no result.")
    expect(limits).to_have_count(0)
    notebook.screenshot(f"limit-over-{theme_of(notebook)}", shown)
    assert themed.errors() == []
    notebook.close()
