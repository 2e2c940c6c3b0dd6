"""Real input: a real model generates in a card and is stopped there; its slot is free at once, and the next prompt answers."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.jlab import Lab

SETUP = """\
import json, time, urllib.request
import agent_widgets as aw
from agent_widgets.models import local

agent = aw.Agent("local")

def busy_slots():
    server = next(iter(local.SERVERS.values()))
    address = server.address.removesuffix("/v1") + "/slots"
    request = urllib.request.Request(address, headers={"Authorization": "Bearer " + server.api_key})
    return sum(slot["is_processing"] for slot in json.load(urllib.request.urlopen(request)))"""
START = "run = aw.chat(agent, 'Write a very long story about a lighthouse and its keeper.')"
BUSY = "print('busy slots:', busy_slots())"
FREED = """\
begun = time.monotonic()
while busy_slots() and time.monotonic() - begun < 2: time.sleep(0.005)
print("slots:", busy_slots(), "freed:", time.monotonic() - begun < 0.5, run.status, agent.state.check())"""
NEXT = """\
reply = await aw.chat(agent, "In one short sentence: what is a lighthouse?")
print(reply.finished_reason, reply.usage.output_tokens > 0, agent.state.check())"""


def test_a_real_model_is_stopped_in_mid_generation_and_answers_the_next_prompt(lab: Lab) -> None:
    lab.write("local.ipynb", [SETUP, START, BUSY, FREED, NEXT])
    notebook = lab.open("local.ipynb")
    notebook.run_cell(0)
    notebook.wait_done(0)
    notebook.run_cell(1)
    card = notebook.cell(1).locator(".aw-card")
    expect(card.locator(".aw-md")).to_contain_text(re.compile(r"(\w+\W+){20}"), timeout=30_000)
    notebook.run_cell(2)
    notebook.wait_text(2, "busy slots: 1")
    card.get_by_role("button", name="Stop").click()
    expect(card.locator(".aw-chip")).to_have_text("stopped")
    notebook.run_cell(3)
    notebook.wait_text(3, "slots: 0 freed: True interrupted ()")
    notebook.run_cell(4)
    notebook.wait_text(4, "completed True ()", timeout=60)
    notebook.screenshot("local")
    assert lab.errors() == []
    notebook.close()
