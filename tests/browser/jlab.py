"""Real JupyterLab, or Notebook 7, in headless Chromium: ``Lab`` is one server, ``Notebook`` one open page.

    with chromium() as browser, Lab(browser) as lab:
        lab.write("hello.ipynb", ["print('hello')"])
        notebook = lab.open("hello.ipynb")
        notebook.run_cell(0)
        notebook.wait_text(0, "hello")

The server has a home, settings and kernels of its own, so that nothing of the person who runs the tests shows or changes.
Playwright's sync API keeps a loop running in this thread: tests that use it are plain functions, and live apart from async
ones. Waiting is for a state of the page; times are limits in seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import nbformat
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, ViewportSize, expect, sync_playwright

from tests.kernel.fakefront import free_port

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "under-test"
"""The kernelspec's name. Not python3: jupyter_client replaces that one by the server's own interpreter."""
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
VIEWPORT: ViewportSize = {"width": 1400, "height": 1500}
"""Tall, because JupyterLab draws only the cells that can be seen."""
QUIET = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
"""Settings without which a question about news lies over the first page, and the network is asked."""
HOST_NOISE = (
    "Failed to load resource",  # JupyterLab asks for files that may be missing, such as a workspace
    "Cannot read properties of undefined (reading 'schema')",  # Notebook 7.6, with an empty notebook and no settings
)
"""Errors that the hosts write without us."""

KERNEL_STATE = """() => {
  for (const widget of window.jupyterapp?.shell.widgets("main") ?? []) {
    const kernel = widget.sessionContext?.session?.kernel;
    if (kernel) return `${kernel.connectionStatus}/${kernel.status}`;
  }
  return "none";
}"""


@contextlib.contextmanager
def chromium() -> Generator[Browser]:
    """A headless Chromium: the system's, and one at a time, since Playwright's sync API starts once in a thread."""
    expect.set_options(timeout=20_000)  # until it is so: on a busy machine the default of 5 s is not enough for a page
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=CHROMIUM_ARGS)
        try:
            yield browser
        finally:
            browser.close()


class Lab:
    """A server of its own. A context manager: the server and its kernels end with the block.

    ``kernels`` maps kernelspec names to interpreters, ``settings`` plugin ids to settings, as in JupyterLab's settings editor.
    """

    def __init__(
        self,
        browser: Browser,
        app: Literal["lab", "notebook"] = "lab",
        *,
        kernels: Mapping[str, str | Path] | None = None,
        theme: Literal["JupyterLab Light", "JupyterLab Dark"] = "JupyterLab Light",
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.app = app
        self._browser = browser
        self.directory = Path(tempfile.mkdtemp(prefix="jlab-"))
        self.notebooks = self.directory / "notebooks"
        self.notebooks.mkdir()
        self.console: list[str] = []
        """What the pages wrote to the console, as ``"error: the text"``, in order."""
        self._token = uuid.uuid4().hex
        self._address = f"http://127.0.0.1:{free_port()}"
        self._install_kernels(kernels or {KERNEL: sys.executable})
        self._install_settings({**QUIET, "@jupyterlab/apputils-extension:themes": {"theme": theme}, **(settings or {})})
        self._server = self._start_server(options)
        try:
            self._wait_for_server()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, politely and then not, and remove its files."""
        self._server.terminate()  # the server shuts its kernels down
        try:
            self._server.wait(15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)  # its own group, see start_new_session
            self._server.wait(5)
        shutil.rmtree(self.directory, ignore_errors=True)

    def write(self, name: str, cells: Sequence[str], *, kernel: str = KERNEL) -> Path:
        """Save a notebook with these code cells. A cell that starts with ``%%markdown`` and a newline is a markdown cell."""
        path = self.notebooks / name
        path.write_text(json.dumps(notebook_json(cells, kernel)))
        return path

    def open(self, name: str) -> Notebook:
        """Open a notebook in a new page, and wait until its kernel is connected and idle."""
        page = self._browser.new_page(viewport=VIEWPORT)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.console.append(f"pageerror: {error}"))
        workspace = f"/lab/workspaces/{uuid.uuid4().hex[:8]}/tree" if self.app == "lab" else "/notebooks"
        page.goto(f"{self._address}{workspace}/{name}?token={self._token}")
        notebook = Notebook(page, self.notebooks / name)
        notebook.wait_ready()
        return notebook

    def errors(self) -> list[str]:
        """The console's errors so far, without the hosts' own."""
        lines = [line for line in self.console if line.startswith(("error:", "pageerror:"))]
        return [line for line in lines if not any(noise in line for noise in HOST_NOISE)]

    def server_log(self) -> str:
        """What the server wrote: the first thing to read when a page does not come up."""
        return (self.directory / "server.log").read_text(errors="replace")

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _hear(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text[:500]}")

    def _install_kernels(self, kernels: Mapping[str, str | Path]) -> None:
        for name, python in kernels.items():
            spec = {
                "argv": [str(python), "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                "display_name": name,
                "language": "python",
                "env": {"PYTHONPATH": str(ROOT)},
                "metadata": {"debugger": False},
            }
            _write_json(self.directory / "data" / "kernels" / name / "kernel.json", spec)

    def _install_settings(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        for plugin, values in settings.items():
            package, name = plugin.split(":")
            _write_json(self.directory / "settings" / package / f"{name}.jupyterlab-settings", values)

    def _start_server(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        private = {
            "HOME": "home",
            "IPYTHONDIR": "ipython",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        module, expose = ("jupyterlab", "LabApp") if self.app == "lab" else ("notebook", "JupyterNotebookApp")
        command = [
            *(sys.executable, "-m", module, "--no-browser", "--allow-root"),
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self._address.rpartition(':')[2]}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={self.notebooks}",
            f"--{expose}.expose_app_in_browser=True",  # window.jupyterapp, which says when the kernel is ready
            *options,
        ]
        env = {
            **os.environ,
            **{name: str(self.directory / value) for name, value in private.items()},
            "JUPYTER_TOKEN": self._token,
        }
        (self.directory / "home").mkdir()
        with (self.directory / "server.log").open("wb") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def _wait_for_server(self, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                urllib.request.urlopen(f"{self._address}/api/status?token={self._token}", timeout=5).close()
            except OSError as error:  # not there yet, or too busy to answer
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"The server did not come up:\n{self.server_log()}") from error
                time.sleep(0.1)  # another process: there is no event to wait for
            else:
                return


class Notebook:
    """One notebook in one page. Cells count from 0. ``page`` is Playwright's, for everything that has no name here."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the kernel is connected and idle. Before that a first Ctrl+Enter is lost."""
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=timeout * 1000)
        self.wait_kernel("connected/idle", timeout)

    def wait_kernel(self, state: str, timeout: float = 60) -> None:
        """Wait for ``connection/status`` of the kernel, for example ``connected/busy``."""
        self.page.wait_for_function(f"state => ({KERNEL_STATE})() === state", arg=state, timeout=timeout * 1000)

    def cell(self, index: int) -> Locator:
        """A cell's element."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Locator:
        """The element of a cell's outputs. It exists, empty, before there are any."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def text(self, index: int) -> str:
        """What a reader sees below a cell now; the text of a hidden output is not in it."""
        output = self.output(index)
        return output.first.inner_text() if output.count() else ""

    def wait_text(self, index: int, text: str | re.Pattern[str], timeout: float = 30) -> None:
        """Wait until the outputs of a cell contain a text."""
        expect(self.output(index)).to_contain_text(text, timeout=timeout * 1000)

    def run_cell(self, index: int) -> None:
        """Press Ctrl+Enter in a cell, and return at once."""
        editor = self.cell(index).locator(".jp-InputArea-editor")
        editor.scroll_into_view_if_needed()
        editor.click()
        self.page.keyboard.press("Control+Enter")

    def wait_done(self, index: int, timeout: float = 40) -> None:
        """Wait until a cell that was run has its number."""
        expect(self.cell(index).locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"), timeout=timeout * 1000)

    def run_all(self) -> None:
        """Run > Run All Cells, and return at once."""
        self.command("notebook:run-all-cells")

    def interrupt(self) -> None:
        """Click ■ in the toolbar."""
        self.page.locator('.jp-NotebookPanel-toolbar [data-command="notebook:interrupt-kernel"]').click()

    def save(self) -> dict[str, Any]:
        """Save, wait until the file is written, and return it as JSON, with text as one string."""
        before = self.path.stat().st_mtime_ns
        self.command("docmanager:save", wait=True)
        deadline = time.monotonic() + 20
        while self.path.stat().st_mtime_ns == before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path.name} was not written")
            self.page.wait_for_timeout(50)  # Playwright's: the page goes on meanwhile
        return nbformat.read(self.path, as_version=4)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (untyped)

    def reload(self, *, wait: bool = True) -> None:
        """Reload the page as a person does, and wait for the kernel; without ``wait`` only for the notebook's cells.

        A busy kernel does not become idle: pass ``wait=False`` to reload in mid-run.
        """
        self.page.reload()
        if wait:
            self.wait_ready()
        else:
            self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)

    def command(self, command: str, *, wait: bool = False) -> None:
        """Execute one of the application's commands, and with ``wait`` wait until it is done."""
        run = "id => { const done = window.jupyterapp.commands.execute(id); return WAIT ? done.then(() => null) : null; }"
        self.page.evaluate(run.replace("WAIT", str(wait).lower()), command)

    def screenshot(self, name: str, target: Locator | None = None) -> Path:
        """A picture of the page, or of one element, in the directory ``$AW_SHOTS`` (default: a temporary one)."""
        directory = Path(os.environ.get("AW_SHOTS") or Path(tempfile.gettempdir()) / "agent-widgets-shots")
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.png"
        (target or self.page).screenshot(path=path)
        return path

    def close(self) -> None:
        """Close the page, as a person closes a tab. The kernel goes on."""
        self.page.close()


def notebook_json(cells: Sequence[str], kernel: str) -> dict[str, Any]:
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
        "cells": [_cell(source) for source in cells],
    }


def _cell(source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"id": uuid.uuid4().hex[:8], "metadata": {}}
    if source.startswith("%%markdown\n"):
        return {**cell, "cell_type": "markdown", "source": source.removeprefix("%%markdown\n")}
    return {**cell, "cell_type": "code", "source": source, "outputs": [], "execution_count": None}


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    raise RuntimeError("Chromium was not found: run make chromium")
