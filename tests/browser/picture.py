"""``make picture``: the README's picture, taken of a real run of the demo agent in JupyterLab."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from playwright.sync_api import ViewportSize, expect

from tests.browser.jlab import ROOT, Lab, chromium

CELLS = [
    """\
import agent_widgets as aw

@aw.tool(confirm=True)
async def delete_rows(table: str, where: str) -> int:
    "Delete the rows of TABLE that match WHERE."
    return 3

agent = aw.Agent("demo", tools=[delete_rows])""",
    'story = aw.chat(agent, "Tell me a long story")',
    "cleanup = aw.chat(agent, 'Delete the cancelled rows of the table \"orders\"')",
]
SIZE: ViewportSize = {"width": 1000, "height": 1020}


def main() -> None:
    """Stop the story in the middle, leave the deletion waiting, and take the picture."""
    os.environ["AW_SHOTS"] = str(ROOT / "examples_notebooks")
    with chromium() as browser, Lab(browser) as lab:
        lab.write("Demo.ipynb", CELLS)
        notebook = lab.open("Demo.ipynb")
        notebook.command("application:toggle-left-area", wait=True)
        notebook.page.set_viewport_size(SIZE)
        notebook.run_cell(0)
        notebook.wait_done(0)
        notebook.run_cell(1)
        story = notebook.cell(1).locator(".aw-card")
        expect(story).to_contain_text("Day 1", timeout=20_000)
        notebook.page.wait_for_timeout(300)  # some more of the story
        story.get_by_role("button", name="Stop").click()
        expect(story).to_contain_text("Stopped by you")
        notebook.run_cell(2)
        asking = notebook.cell(2).locator(".aw-card")
        expect(asking).to_contain_text("waiting for you", timeout=20_000)
        asking.get_by_label("Reason for denying").fill("Not before the back-up")
        notebook.page.wait_for_timeout(300)  # the focus ring's fade
        path = notebook.screenshot("quickstart", notebook.page.locator(".jp-Notebook"))
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
