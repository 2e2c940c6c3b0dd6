"""The card's life with its page: reloads while a cell runs, what the file says afterwards, second views, kernels that go."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.jlab import Lab, Notebook
from tests.browser.reviving import ALSO_BUSY, KERNELS, UNHEARD, Back, busy_notebook, lab_of_all_kernels, reload
from tests.browser.test_card import ASKS, button, card, ended, in_order, opened, theme_of, words

pytestmark = pytest.mark.timeout(300)  # pages, servers and kernels are many here

SOON = 5.0
"""Seconds from the notebook to a Stop that can be pressed, where the machine is quiet; tests.bench.reload has the figures."""

KINDS = [
    (kernel, kind)
    for kernel in KERNELS
    for kind in ("awaiting", "sync", "foreign")
    if (kernel, kind) != UNHEARD  # see the test of its own
] + [("ipykernel-7.4", kind) for kind in ALSO_BUSY]
DONE = "agent = aw.Agent(ScriptedModel([[say('A **bold** answer.')]]))\nawait aw.chat(agent, 'What is it?')"
STORY = "agent = aw.Agent(slow('And then?'))\nrun = aw.chat(agent, 'Tell me a story')"


def soon(back: Back) -> bool:
    """Long before the cell ends, also where other tests make this machine slow: then the notebook itself takes longer."""
    return back.stop - back.notebook < max(SOON, back.notebook)


@pytest.fixture(scope="module", params=["lab", "notebook"])
def kernels(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Lab]:
    with lab_of_all_kernels(browser, request.param) as lab:
        yield lab


def others_answer(notebook: Notebook) -> None:
    """Other people's widgets are there and do what they do."""
    widgets = notebook.output(1)
    width = "image => image.decode().then(() => image.naturalWidth)"
    assert widgets.locator("img").evaluate(width) == 1  # it came as a binary buffer
    widgets.get_by_role("button", name="click").click()
    expect(widgets.get_by_role("button")).to_have_text("clicked 1")
    widgets.locator(".widget-readout").fill("42")
    notebook.page.keyboard.press("Enter")
    expect(widgets).to_contain_text("slid to 42")


@pytest.mark.parametrize(("kernel", "kind"), KINDS)
def test_after_a_reload_in_a_busy_cell_the_card_is_back_with_its_stop_and_so_are_other_widgets(
    kernels: Lab, kernel: str, kind: str
) -> None:
    notebook = busy_notebook(kernels, kernel, kind)
    back = reload(notebook)
    assert soon(back)
    shown = card(notebook, 3)
    button(shown, "Stop").click()
    ended(notebook, 3, "stopped")
    assert in_order(shown.inner_text())
    if kind == "foreign":
        notebook.interrupt()  # the loop around it goes on without the run
    notebook.wait_kernel("connected/idle")
    others_answer(notebook)
    assert kernels.errors() == []
    notebook.close()


def test_thirty_cards_come_back_too(kernels: Lab) -> None:
    notebook = busy_notebook(kernels, "ipykernel-7.4", "sync", cards=30)
    back = reload(notebook)
    assert soon(back)
    expect(notebook.page.locator(".aw-card")).to_have_count(31, timeout=20_000)
    for cell, number in ((1, 0), (2, 29)):
        expect(notebook.output(cell)).to_contain_text(f"answer {number}")
    button(card(notebook, 3), "Stop").click()
    ended(notebook, 3, "stopped")
    assert kernels.errors() == []
    notebook.close()


def test_on_ipykernel_6_under_a_foreign_blocking_cell_the_card_comes_back_when_it_ends(browser: Browser) -> None:
    with lab_of_all_kernels(browser, "lab") as lab:
        notebook = busy_notebook(lab, *UNHEARD, seconds=25)
        back = reload(notebook)
        assert back.card > SOON, back
        assert lab.errors() == []
        button(card(notebook, 3), "Stop").click()
        ended(notebook, 3, "stopped")


# -- what the file says -----------------------------------------------------------------------------------------------


def reopened(lab: Lab, notebook: Notebook) -> Notebook:
    """Next week: the file without its kernel."""
    notebook.save()
    notebook.command("notebook:shutdown-kernel")
    notebook.wait_kernel("none")
    notebook.close()
    return lab.open(notebook.path.name)


def saved_twin(notebook: Notebook, cell: int = 1) -> str:
    outputs: list[Any] = notebook.save()["cells"][cell]["outputs"]
    return next(output["data"]["text/html"] for output in outputs if "aw-static" in output["data"].get("text/html", ""))


def test_a_run_that_ended_after_a_reload_is_in_the_file_to_its_end(app: Lab) -> None:
    notebook = opened(app, "reloaded-file", STORY)
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word5")
    assert "before the run had ended" in saved_twin(notebook)
    notebook.reload(wait=False)
    expect(card(notebook, 1)).to_contain_text("word60", timeout=20_000)
    button(card(notebook, 1), "Stop").click()
    ended(notebook, 1, "stopped")
    expect(notebook.output(1).locator(".aw-static")).to_contain_text("stopped by you")
    expect(notebook.output(1).locator(".aw-static")).to_be_hidden()
    twin = saved_twin(notebook)
    assert words(twin) == words(card(notebook, 1).inner_text())
    assert "before the run had ended" not in twin
    again = reopened(app, notebook)
    expect(again.output(1).locator(".aw-static")).to_contain_text("stopped by you")
    assert app.errors() == []
    again.close()


def test_a_page_that_was_closed_in_mid_run_leaves_a_file_that_says_when_it_was_written(lab: Lab) -> None:
    notebook = opened(lab, "closed-file", STORY)
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word5")
    again = reopened(lab, notebook)
    again.wait_text(1, "Written on")
    said = again.text(1)
    assert re.search(r"Written on \d{4}-\d\d-\d\d at \d\d:\d\d UTC, before the run had ended", said)
    assert not re.search(r"\b(is|still) running\b", said)
    again.close()


def test_the_whole_transcript_is_shown_in_a_cell_when_it_is_asked_for(lab: Lab) -> None:
    notebook = opened(lab, "shown-again", DONE, "%load_ext agent_widgets\n%agent show")
    for cell in (1, 2):
        notebook.run_cell(cell)
        notebook.wait_done(cell)
    shown = notebook.output(2).locator(".aw-static")
    expect(shown.locator("strong")).to_have_text("bold")
    expect(shown).to_be_visible()  # the card above hides its own twin only
    expect(notebook.output(1).locator(".aw-static")).to_be_hidden()
    notebook.close()


# -- two views ----------------------------------------------------------------------------------------------------------


def test_a_view_in_a_tab_of_its_own_and_the_one_in_the_cell_are_both_alive(lab: Lab) -> None:
    notebook = opened(lab, "new-view", STORY)
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word5")
    notebook.command("notebook:create-output-view")
    view = notebook.page.locator(".jp-LinkedOutputView .aw-card")
    expect(view).to_contain_text("word40")
    button(view, "Stop").click()
    ended(notebook, 1, "stopped")
    expect(view.locator(".aw-chip")).to_have_text("stopped")
    assert words(view.inner_text()) == words(card(notebook, 1).inner_text())
    assert lab.errors() == []
    notebook.close()


def test_two_pages_of_one_notebook_are_both_alive_and_a_call_is_decided_once(app: Lab) -> None:
    cells = (ASKS, "print([m['content'] for m in deleter.model.requests[-1].messages if m['role'] == 'tool'])")
    notebook = opened(app, "two-pages", *cells)
    notebook.run_cell(1)
    expect(card(notebook, 1).locator(".aw-chip")).to_have_text("waiting for you")
    notebook.save()
    other = app.open("two-pages.ipynb")
    expect(card(other, 1).locator(".aw-chip")).to_have_text("waiting for you")
    approve = "[...document.querySelectorAll('.aw-card button')].find(b => b.textContent === 'Approve')"
    buttons = [page.page.evaluate_handle(approve) for page in (notebook, other)]
    for found in buttons:  # pressed in both, before either can know of the other
        found.evaluate("button => button.click()")
    ended(notebook, 1, "done")
    ended(other, 1, "done")
    notebook.run_cell(2)
    notebook.wait_text(2, "['3']")
    assert app.errors() == []
    other.close()
    notebook.close()


def test_a_stop_in_one_page_is_seen_in_the_other(app: Lab) -> None:
    notebook = opened(app, "two-pages-stop", STORY)
    notebook.run_cell(1)
    expect(card(notebook, 1)).to_contain_text("word5")
    notebook.save()
    other = app.open("two-pages-stop.ipynb")
    expect(card(other, 1)).to_contain_text("word40")
    button(card(other, 1), "Stop").click()
    ended(other, 1, "stopped")
    ended(notebook, 1, "stopped")
    assert words(card(other, 1).inner_text()) == words(card(notebook, 1).inner_text())
    other.close()
    notebook.close()


# -- the kernel goes --------------------------------------------------------------------------------------------------------


def restart(notebook: Notebook, _pid: int) -> None:
    notebook.command("notebook:restart-kernel")
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()


def kill(_notebook: Notebook, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)  # the server restarts it


def shut_down(notebook: Notebook, _pid: int) -> None:
    notebook.command("notebook:shutdown-kernel")


WAYS: dict[str, tuple[Callable[[Notebook, int], None], str]] = {
    "restart": (restart, "The kernel was restarted."),
    "kill": (kill, "The kernel was restarted."),
    "shutdown": (shut_down, "The kernel was shut down."),
}


def at_rest(shown: Locator) -> None:
    """Nothing can be pressed, and nothing moves; it can still be unfolded and copied."""
    pressable = "button:not(.aw-copy, .aw-more), select, textarea:not([readonly]), input:not([readonly])"
    controls = shown.locator(f":is({pressable}):enabled:visible")
    assert [control.evaluate("control => control.outerHTML") for control in controls.all()] == []
    assert shown.evaluate("card => card.getAnimations({ subtree: true }).map(one => one.effect.target.className)") == []
    clock = shown.locator(".aw-time")
    before = clock.inner_text()
    shown.page.wait_for_timeout(500)
    assert clock.inner_text() == before


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_that_goes_in_mid_run_leaves_a_card_that_can_be_read_and_says_what_happened(app: Lab, way: str) -> None:
    go, told = WAYS[way]
    notebook = opened(app, f"gone-{way}", "import os; print(os.getpid())", STORY)
    notebook.run_cell(1)
    notebook.wait_done(1)
    notebook.run_cell(2)
    shown = card(notebook, 2)
    expect(shown).to_contain_text("word20")
    notebook.wait_text(1, re.compile(r"\d+"))
    go(notebook, int(notebook.text(1)))
    expect(shown.locator(".aw-chip")).to_have_text("kernel gone", timeout=20_000)
    notice = shown.locator(".aw-notice")
    expect(notice).to_contain_text(re.compile(rf"^{told} What you see is the transcript up to \d+:\d\d:\d\d"))
    expect(notice).to_contain_text(
        'Its session was not stored and is lost with the kernel; to keep the next one, call Session.open("'
    )
    at_rest(shown)
    assert len(words(shown.inner_text())) > 20
    if way != "shutdown":
        notebook.wait_kernel("connected/idle")
        at_rest(shown)  # the new kernel does not wake it
    notebook.screenshot(f"gone-{way}-{app.app}", shown)
    assert app.errors() == []
    notebook.close()


def test_a_stored_session_is_named_with_the_line_that_loads_it_and_a_call_that_waited_waits_again(lab: Lab) -> None:
    stored = ASKS.replace("run = aw.chat", 'aw.Session.open("orders.session", deleter)\nrun = aw.chat')
    script = '[[say("I shall clean up."), ask], [say("As you say.")]]'
    later = stored.replace(script, '[[say("As you say.")]]').replace('(deleter, "Clean up the orders table")', "(deleter)")
    notebook = opened(lab, "gone-stored", stored, later)
    notebook.run_cell(1)
    shown = card(notebook, 1)
    expect(shown.locator(".aw-chip")).to_have_text("waiting for you")
    restart(notebook, 0)
    expect(shown.locator(".aw-chip")).to_have_text("kernel gone")
    expect(shown.locator(".aw-notice")).to_contain_text('Its session is stored: Session.open("orders.session", agent) loads it')
    at_rest(shown)
    notebook.screenshot("gone-stored", shown)
    notebook.wait_kernel("connected/idle")
    notebook.run_cell(0)
    notebook.wait_done(0)
    notebook.run_cell(2)
    button(card(notebook, 2), "Approve").click()
    ended(notebook, 2, "done")
    at_rest(shown)
    assert lab.errors() == []
    notebook.close()


# -- tomorrow -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["Light", "Dark"])
def keeping(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Lab]:
    """JupyterLab with "Save Widget State Automatically"."""
    settings = {"@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True}}
    with Lab(browser, settings=settings, theme=f"JupyterLab {request.param}") as lab:  # pyright: ignore[reportArgumentType]
        yield lab


def test_a_card_from_saved_widget_state_says_that_it_is_not_live(keeping: Lab) -> None:
    notebook = opened(keeping, "from-file", DONE, ASKS)
    for index, chip in ((1, "done"), (2, "waiting for you")):
        notebook.run_cell(index)
        expect(card(notebook, index).locator(".aw-chip")).to_have_text(chip)
    again = reopened(keeping, notebook)
    for index, chip in ((1, "done"), (2, "kernel gone")):
        shown = card(again, index)
        expect(shown.locator(".aw-notice")).to_have_text(
            "This card comes from the saved notebook and is not connected to a kernel. What you see is the transcript."
        )
        expect(shown.locator(".aw-chip")).to_have_text(chip)
        at_rest(shown)
        expect(again.output(index).locator(".aw-static")).to_be_hidden()
    expect(card(again, 1).locator("strong")).to_have_text("bold")
    again.screenshot(f"from-file-{theme_of(again)}")
    assert keeping.errors() == []
    again.close()


@pytest.mark.parametrize("kernel", ["fresh", "none"])
def test_a_copy_that_is_not_trusted_shows_the_transcript_only(lab: Lab, kernel: str) -> None:
    notebook = opened(lab, f"trusted-{kernel}", DONE)
    notebook.run_cell(1)
    ended(notebook, 1, "done")
    expect(notebook.output(1).locator(".aw-static")).to_contain_text("bold")
    notebook.save()
    copy: Path = notebook.path.with_name(f"untrusted-{kernel}.ipynb")
    copy.write_text(
        notebook.path.read_text().replace("What is it?", "What was it?")
    )  # other outputs: not the ones that were signed
    notebook.close()
    again = lab.open(copy.name)
    if kernel == "none":
        again.command("notebook:shutdown-kernel")
        again.wait_kernel("none")
    expect(again.output(1).locator(".aw-static strong")).to_have_text("bold")
    assert (
        again.page.get_by_text(re.compile("Error displaying widget|model not found|live card")).locator("visible=true").count()
        == 0
    )
    again.screenshot(f"untrusted-{kernel}")
    assert lab.errors() == []
    again.close()
