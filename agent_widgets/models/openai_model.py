"""What both wires of the ``openai`` client share: one client for each loop, a bounded silence, and faults told without secrets.

A subclass is one wire: it opens a stream, and names the reader that turns what comes into pieces.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import anyio

from agent_widgets.backends import ModelDelta, ModelRequest
from agent_widgets.errors import InputError, ModelError, ModelSetupError
from agent_widgets.models.characters import Joiner, whole_json
from agent_widgets.models.clients import CLOSE_SECONDS, ClientPerLoop
from agent_widgets.models.openai_errors import RESUME, ServerSaidError, Wire, explain, other_loop, shown_address

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = "not-needed"
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie")


class Reader(Protocol):
    """Turns what a server streams into the pieces of one answer. Pure: nothing waits here, nothing is sent."""

    @property
    def finish_reason(self) -> str:
        """Why the server ended the answer, in the words of Chat Completions; ``""`` until it said so."""
        ...

    @property
    def said(self) -> bool:
        """Whether any text or call has come."""
        ...

    @property
    def called(self) -> bool:
        """Whether a tool call has come."""
        ...

    @property
    def chunks(self) -> int:
        """How many chunks have come, of whatever kind."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is complete."""
        ...

    def read(self, chunk: object, /) -> Iterator[ModelDelta]:
        """The pieces in this chunk."""
        ...

    def rest(self) -> Iterator[ModelDelta]:
        """What is left when the stream has ended."""
        ...


class OpenAIModel:
    """A model behind a server that the ``openai`` client can speak to. Its subclasses say in which language.

    One instance may be used on several event loops, also at the same time: it keeps one client for each, and closes it when
    that loop shuts down. Nothing is retried out of sight. Closing or cancelling a stream closes its HTTP response at once.

    Attributes:
        base_url: The address that was given, or ``None``: ``OPENAI_BASE_URL``, or OpenAI's own.
        last_finish_reason: Why the answer that ended last was ended by the server: ``"stop"``, ``"tool_calls"``, or
            ``"length"`` for text that was cut at the token limit; ``""`` before the first.
        note: What the card says about this model.
    """

    _wire: ClassVar[Wire]
    _ours: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        timeout: float | None = 120.0,
        **options: Any,
    ) -> None:
        """Say which model. Nothing is imported or sent before the first call.

        Args:
            model: The server's name for it.
            base_url: A server's address, as ``http://localhost:8000/v1``. It needs no key.
            api_key: ``None`` takes ``OPENAI_API_KEY``.
            client: An ``AsyncOpenAI`` of your own, used as it is, with its own retries and timeout. A client belongs to one
                event loop, and ``chat`` carries runs on one of its own: for it give ``base_url`` and ``api_key`` instead.
            timeout: The longest silence of the server, in seconds, before its answer and within it; a long answer, a slow one
                and a slow reader have no limit. A server's keep-alive lines are no silence. ``None``: no limit.
            options: Sent with each request, by the wire's own names: ``temperature``, ``extra_body``, ...

        Raises:
            InputError: a client together with an address or a key; or an option that this class sets itself.
        """
        if client is not None and (base_url is not None or api_key is not None):
            raise InputError(f"{type(self).__name__}: give either client, or base_url and api_key; the client has its own.")
        if taken := [name for name in self._ours if name in options]:
            raise InputError(f"{type(self).__name__}: the option {taken[0]!r} is set by each call itself; leave it out.")
        self.base_url = base_url
        self.last_finish_reason = ""
        self.note = ""
        self._model = model
        self._api_key = api_key
        self._client = client
        self._client_loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._timeout = timeout
        self._options = options
        self._clients = ClientPerLoop(self._make_client)

    @property
    def name(self) -> str:
        """As the card shows it: the model's name."""
        return self._model

    def __repr__(self) -> str:
        """Its model and address, never its key."""
        where = f", base_url={shown_address(self.base_url)!r}" if self.base_url else ""
        return f"{type(self).__name__}({self._model!r}{where})"

    async def aclose(self) -> None:
        """Close the connections: of this event loop before it returns, of others soon. The next call opens new ones."""
        await self._clients.aclose()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        """The answer, piece by piece.

        Raises:
            ModelSetupError: no key, a refused key, no such model or address, a client of another event loop: trying again
                will not help.
            ModelError: anything else: too many requests, a server's fault, silence, a broken or malformed stream; an answer
                that was cut at the token limit inside a tool call or before its first word, or by a content filter.
                Pieces that came before are part of the answer.
        """
        client = await self._connect()
        reader, characters = self._reader(), Joiner()
        failure: ModelError | None = None
        try:
            response = await self._open(client, request)
            try:
                async for chunk in response:
                    for piece in characters.join(reader.read(chunk)):
                        yield piece
            except _faults() as error:
                if not (reader.finish_reason and _is_lost(error)):
                    raise
            finally:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await response.close()
            for piece in (*characters.join(reader.rest()), *characters.rest()):
                yield piece
        except _faults() as error:
            if isinstance(error, RuntimeError) and "loop" not in str(error):
                raise
            failure = explain(
                error,
                model=self.name,
                address=str(client.base_url),
                silence_s=self._timeout,
                secrets=_secrets({**client.default_headers, **(self._options.get("extra_headers") or {})}, client.api_key),
                wire=self._wire,
            )
        if failure is not None:  # raised out here: no __context__ that might hold what explain() has left out
            raise failure
        self._check_end(reader, str(client.base_url))

    def _reader(self) -> Reader:
        """What reads one answer of this wire."""
        raise NotImplementedError

    async def _open(self, client: AsyncOpenAI, request: ModelRequest, /) -> Any:
        """Send the request; gives the client's stream."""
        raise NotImplementedError

    async def _connect(self) -> AsyncOpenAI:
        """The client to ask. A subclass may start its server here."""
        if "openai" not in sys.modules:  # half a second: not on the loop that carries the other runs
            await asyncio.to_thread(__import__, "openai")
        if self._client is None:
            return await self._clients.get()
        loop = asyncio.get_running_loop()
        first = self._client_loop = self._client_loop or weakref.ref(loop)
        if first() is not loop:  # its idle connections would fail here, or never answer
            raise other_loop(self.name)
        return self._client

    def _http_options(self) -> dict[str, Any]:
        """More arguments for the HTTP client. A subclass may bring its own transport."""
        return {}

    def _make_client(self) -> AsyncOpenAI:
        import openai

        base_url = self.base_url or os.environ.get("OPENAI_BASE_URL") or None
        key = (self._api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and base_url is None:
            raise ModelSetupError(
                self._model,
                "there is no API key.",
                'Set OPENAI_API_KEY; or use the model "demo" (no key, no network) or "local" (a small real model, no key); '
                "or give base_url of a server that needs none.",
            )
        timeout = openai.Timeout(self._timeout, connect=min(self._timeout or 20.0, 20.0))
        http = openai.DefaultAsyncHttpxClient(timeout=timeout, **self._http_options())
        return openai.AsyncOpenAI(api_key=key or NO_KEY, base_url=base_url, timeout=timeout, max_retries=0, http_client=http)

    async def _create(self, create: Callable[..., Any], body: dict[str, Any]) -> Any:
        """Send ``body`` through a method of the client.

        Raises:
            ModelSetupError: the client does not know one of the options.
        """
        try:
            return await create(**whole_json(body))
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                raise
            problem = f"the openai client does not know an option: {error}."
            raise ModelSetupError(self.name, problem, "Pass what only your server knows in extra_body={...}.") from error

    def _check_end(self, reader: Reader, address: str) -> None:
        self.last_finish_reason = reason = reader.finish_reason
        where = shown_address(address)
        if not reader.chunks:
            problem = f"{where} answered, but not with a stream."
            raise ModelError(self.name, problem, f"Check that base_url is that of {self._wire.server} (most end in /v1).")
        if not reader.ended:
            problem = f"the connection to {where} ended before the answer was complete."
            raise ModelError(self.name, problem, RESUME, is_temporary=True)
        if reason == "content_filter":
            raise ModelError(self.name, "the provider's content filter cut the answer.", "Ask in other words.")
        if reason == "error":
            raise ModelError(self.name, f"{where} broke off with an error.", RESUME, is_temporary=True)
        if reason == "length" and (reader.called or not reader.said):
            what = "in the middle of a tool call" if reader.called else "before it said anything"
            problem = f"the answer reached its token limit {what}."
            raise ModelError(self.name, problem, f"Give {type(self).__name__} a larger {self._wire.limit}.")


def http_library() -> Any:
    """The module that the ``openai`` client speaks HTTP with: ``httpx``, or ``httpx2`` since openai 3."""
    import openai

    return sys.modules[openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]]


def _faults() -> tuple[type[Exception], ...]:
    """What a call may raise: the client's errors, and those of the HTTP library below it that older clients let through."""
    import openai

    http = http_library()
    return (openai.OpenAIError, http.HTTPError, http.StreamError, http.InvalidURL, ServerSaidError, ValueError, RuntimeError)


def _is_lost(error: Exception) -> bool:
    """Whether what follows is only lost or garbled: after the end of an answer that does no harm."""
    import openai

    http = http_library()
    return isinstance(error, openai.APIConnectionError | http.HTTPError | http.StreamError | ValueError)


def _secrets(headers: Mapping[str, object], key: str) -> Iterator[str]:
    yield key
    for name, value in headers.items():
        if isinstance(value, str) and any(word in name.lower() for word in _SECRET_HEADERS):
            yield value
            yield value.partition(" ")[2]
