"""A real host on a free loopback port, opened in headless Chromium: ``Host`` is one server, ``Card`` one card in its page.

Hosts run in an environment of their own (``.venvs/hosts``): they bring five web stacks. Playwright's sync API keeps a loop
running in this thread, so tests here are plain functions. What a page is asked, it is asked in the page: no time of
Playwright's is in a figure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, ViewportSize, expect

from tests.browser.jlab import ROOT
from tests.conftest import environment
from tests.kernel.fakefront import free_port

VIEWPORT: ViewportSize = {"width": 1100, "height": 1300}

GROWTH = """(card, ms) => new Promise((done) => {
  const steps = [];
  const words = () => card.textContent.split("word").length;
  const before = words();
  let length = card.textContent.length;
  const observer = new MutationObserver(() => {
    if (card.textContent.length > length) {
      length = card.textContent.length;
      steps.push(performance.now());
    }
  });
  observer.observe(card, { subtree: true, childList: true, characterData: true });
  setTimeout(() => { observer.disconnect(); done({ steps, words: words() - before }); }, ms);
})"""

PRESS_STOP = """(card) => new Promise((done, fail) => {
  const stop = [...card.querySelectorAll("button")].find((button) => button.textContent === "Stop");
  const pressed = performance.now();
  const observer = new MutationObserver(() => {
    if (![...card.querySelectorAll(".aw-chip")].some((chip) => chip.textContent === "stopped")) return;
    observer.disconnect();
    done(performance.now() - pressed);
  });
  observer.observe(card, { subtree: true, childList: true, characterData: true });
  setTimeout(() => fail(new Error("not stopped within 20 s")), 20000);
  stop.click();
})"""


@dataclass(frozen=True, slots=True)
class Growth:
    """How a card's text grew while it was watched."""

    steps: int
    words_a_second: float
    longest_gap_ms: float


class Host:
    """A server that shows cards, and one page of it. A context manager: the server ends with the block.

    ``{port}`` in the command is the port. ``files`` maps addresses that the page asks the network for to files: what begins
    with the address is answered with that file, and everything else that is not on loopback is refused.
    """

    def __init__(
        self,
        browser: Browser,
        command: Sequence[str],
        directory: Path,
        *,
        path: str = "/",
        env: Mapping[str, str] | None = None,
        files: Mapping[str, Path] | None = None,
        color_scheme: Any = "light",
    ) -> None:
        self.console: list[str] = []
        """What the page wrote to the console, as ``"error: the text"``, in order."""
        self.refused: list[str] = []
        """What the page asked the network for, in vain."""
        self._directory = directory
        self._files = files or {}
        port = free_port()
        self._address = f"http://127.0.0.1:{port}"
        self._path = path
        self._server = self._start([part.replace("{port}", str(port)) for part in command], env or {})
        self._context: BrowserContext | None = None
        try:
            self._wait_until_served()
            self._context = browser.new_context(viewport=VIEWPORT, color_scheme=color_scheme)
            self._context.route(lambda url: not url.startswith(self._address), self._answer)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the pages and end the server, with all that it started."""
        if self._context is not None:
            self._context.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGTERM)  # its own group, see start_new_session
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait(5)

    def open(self) -> Page:
        """Open the page, as another person would."""
        assert self._context is not None
        page = self._context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.console.append(f"pageerror: {error}"))
        page.goto(f"{self._address}{self._path}", wait_until="commit", timeout=60_000)
        return page

    def errors(self, *, noise: Sequence[str] = ()) -> list[str]:
        """The console's errors so far, without the host's own."""
        lines = [line for line in self.console if line.startswith(("error:", "pageerror:"))]
        return [line for line in lines if not any(own in line for own in noise)]

    def log(self) -> str:
        """What the server wrote: the first thing to read when a page does not come up."""
        return (self._directory / "server.log").read_text(errors="replace")

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _hear(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text[:500]}")

    def _answer(self, route: Any) -> None:
        url = route.request.url
        for address, file in self._files.items():
            if url.startswith(address):
                route.fulfill(path=file, content_type="text/javascript", headers={"Access-Control-Allow-Origin": "*"})
                return
        self.refused.append(url)
        route.abort()

    def _start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        home = self._directory / "home"
        home.mkdir()
        private = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "IPYTHONDIR": str(home / "ipython"),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{bin_directory()}{os.pathsep}{os.environ['PATH']}",
        }
        with (self._directory / "server.log").open("wb") as log:
            return subprocess.Popen(
                [str(bin_directory() / command[0]), *command[1:]],
                cwd=self._directory,
                env={**os.environ, **private, **env},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _wait_until_served(self, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                urllib.request.urlopen(f"{self._address}/no-such-page", timeout=5).close()
            except urllib.error.HTTPError:
                return  # it answers
            except OSError as error:  # not there yet, or too busy to answer
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"The server did not come up:\n{self.log()}") from error
                time.sleep(0.1)  # another process: there is no event to wait for
            else:
                return


class Card:
    """A card in a page, wherever the host has put it (Playwright looks into open shadow roots)."""

    def __init__(self, page: Page, index: int = 0) -> None:
        self.page = page
        self.element: Locator = page.locator(".aw-card").nth(index)

    def wait_for(self, text: str, timeout: float = 60) -> None:
        """Until the card shows a text."""
        expect(self.element).to_contain_text(text, timeout=timeout * 1000)

    def wait_for_outcome(self, outcome: str) -> None:
        """Until the newest run of the card is ``done``, ``stopped`` or ``waiting for you``."""
        expect(self.element.locator(".aw-chip").last).to_have_text(outcome, timeout=60_000)

    def text(self) -> str:
        """All its text, also what is out of sight."""
        return self.element.text_content() or ""

    def grows(self, seconds: float = 2) -> Growth:
        """Watch it grow."""
        seen: dict[str, Any] = self.element.evaluate(GROWTH, seconds * 1000)
        steps: list[float] = seen["steps"]
        gaps = [later - earlier for earlier, later in pairwise(steps)]
        return Growth(len(steps), seen["words"] / seconds, max(gaps, default=float("inf")))

    def stop(self) -> float:
        """Press Stop, wait for "stopped"; gives the milliseconds between, by the page's clock."""
        return float(self.element.evaluate(PRESS_STOP))

    def ask(self, prompt: str) -> None:
        """Type a prompt into the card's own box, and send it."""
        self.element.get_by_placeholder("Ask something…").fill(prompt)
        self.press("Send")

    def press(self, name: str) -> None:
        """Press a button by its name."""
        self.element.get_by_role("button", name=name, exact=True).last.click()

    def deny(self, reason: str) -> None:
        """Deny the call that waits, and say why."""
        self.element.get_by_label("Reason for denying").last.fill(reason)
        self.press("Deny")


def bin_directory() -> Path:
    """Where the hosts' commands are."""
    return environment("hosts", made_by="hosts-env").parent
