"""What a tool prints and displays, in real JupyterLab, light and dark: all of it readable and inside the card."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.jlab import Lab
from tests.browser.test_card import card, ended, opened, theme_of

TOOL = """\
import logging, sys, warnings
import matplotlib.pyplot as plt, pandas
from IPython.display import HTML, Markdown, display

@aw.tool
def look_at(table: str) -> str:
    "Look at a table: numbers, a plot, and what is odd about it."
    print(f"\\x1b[32mreading\\x1b[0m {table}")
    for n in range(0, 101, 20):
        print(f"\\r{n:3}% |{'█' * (n // 10):10}| {n * 4} of 400 rows", end="", file=sys.stderr)
        time.sleep(0.1)
    print(file=sys.stderr)
    logging.getLogger("orders").warning("3 rows have no price")
    warnings.warn("prices are in cents")
    display(Markdown("**400 rows**, the first of which are:"))
    columns = {f"column number {n}": [n * 1000.5, n * 2000.25] for n in range(14)}
    display(pandas.DataFrame({"customer": ["Ada", "Grace"], **columns}))
    figure, axes = plt.subplots(figsize=(12, 3))
    axes.plot([3, 1, 4, 1, 5, 9, 2, 6]); axes.set_title("price")
    return "400 rows, 3 without a price"

agent = aw.Agent(ScriptedModel([[call("look_at", {"table": "orders"})], [say("The table has **400 rows**.")]]), tools=[look_at])
run = aw.chat(agent, "Have a look at the orders")"""
WAITS = """\
@aw.tool(thread="main")
def ask_database(query: str) -> str:
    "Ask a database whose connection belongs to the main thread."
    return "3"

asking = aw.Agent(ScriptedModel([[call("ask_database", {"query": "select 3"})], [say("Three.")]]), tools=[ask_database])
run = aw.chat(asking, "How many?")
while not run.is_over: time.sleep(0.05)"""


@pytest.fixture(scope="module", params=["Light", "Dark"])
def themed(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Lab]:
    with Lab(browser, theme=f"JupyterLab {request.param}") as lab:  # pyright: ignore[reportArgumentType]
        yield lab


def test_all_that_a_tool_shows_is_in_its_card_and_nothing_is_wider_than_it(themed: Lab) -> None:
    notebook = opened(themed, "Output", TOOL)
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown.locator(".aw-chip")).to_have_text("done", timeout=60_000)  # pandas and matplotlib are imported
    printed = shown.locator(".aw-printed")
    expect(printed.locator(".aw-output").first).to_have_text("reading orders\n")
    expect(printed).to_contain_text("100% |██████████| 400 of 400 rows")
    expect(printed).not_to_contain_text("80%")
    expect(printed).to_contain_text("3 rows have no price")
    expect(printed).to_contain_text("UserWarning: prices are in cents")
    expect(printed.locator("strong")).to_have_text("400 rows")
    expect(printed.locator("table.dataframe td").first).to_have_text("Ada")
    shown.locator(".aw-image").evaluate("image => image.decode()")
    widths = shown.evaluate("card => [card.scrollWidth - card.clientWidth, card.querySelector('.aw-image').naturalWidth]")
    assert widths[0] == 0
    assert widths[1] > 900
    table = printed.locator(".aw-scroll")
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")  # the table scrolls by itself
    notebook.screenshot(f"output-{theme_of(notebook)}", shown)
    assert themed.errors() == []
    notebook.close()


def test_a_call_that_waits_for_the_main_thread_says_so_and_stop_takes_it_back(themed: Lab) -> None:
    notebook = opened(themed, "Waits", WAITS)
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown.locator(".aw-tool-word")).to_have_text("waits for the main thread, which is busy")
    notebook.screenshot(f"waits-{theme_of(notebook)}", shown)
    shown.get_by_role("button", name="Stop").click()
    ended(notebook, 1, "stopped")
    assert themed.errors() == []
    notebook.close()
