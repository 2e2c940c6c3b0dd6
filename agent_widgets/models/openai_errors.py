"""Why a model call failed, as a sentence that says what to do, and without any secret in it."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

from agent_widgets.errors import ConversationTooLongError, ModelError, ModelSetupError
from agent_widgets.models.cleansing import chain, cleanse, hider, holds_secret

RESUME = "What came so far is kept; resume() tries again."
_BILLING = "Look at the provider's billing page."
_TOO_LONG = "Begin a fresh one: Session.run(prompt, reset=True)."
_REFUSED = "The same request would be refused again."
_SAYS_TOO_LONG = r"context (size|length|window)|(prompt|input|request) is too long|input token count"
_SERVER_FAULT = 500
_ABSURD_SECONDS = 30 * 24 * 3600.0
_QUOTED = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The words in which one of OpenAI's languages is spoken of. ``unknown`` is said where a server does not know it."""

    answer: str
    server: str
    limit: str
    unknown: str = ""


CHAT_COMPLETIONS = Wire(answer="a chat completion", server="a Chat Completions server", limit="max_completion_tokens")
RESPONSES = Wire(
    answer="a response",
    server="a server with the Responses API",
    limit="max_output_tokens",
    unknown=" A server that knows only Chat Completions needs OpenAIChat.",
)


class ServerSaidError(Exception):
    """What a server said inside its stream about its own failure. ``code`` is a word for programs, or ``""``."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message, self.code = message, code


def explain(
    error: Exception,
    *,
    model: str,
    address: str,
    silence_s: float | None,
    secrets: Iterable[str],
    wire: Wire = CHAT_COMPLETIONS,
) -> ModelError:
    """The failure as a ``ModelError`` whose cause is ``error``, both without secrets.

    Args:
        error: What the client raised. Its texts are cleansed in place: it stays the same exception, with the same traceback.
        model: The model that was asked.
        address: The server's base URL.
        silence_s: The longest silence that was allowed, in seconds.
        secrets: Keys and header values that must not be shown.
        wire: The language that was spoken.
    """
    hide = hider(secrets)
    for link in chain(error):
        cleanse(link, hide)
    kind, problem, advice = _account(error, shown_address(address), silence_s, wire)
    is_temporary = RESUME in advice and not (isinstance(error, ValueError) and not _is_cut(error))
    failure = kind(model, hide(problem), advice, is_temporary=is_temporary, retry_after_s=_retry_after_s(error))
    failure.__cause__ = None if any(holds_secret(link, hide) for link in chain(error)) else error
    return failure


def shown_address(address: str) -> str:
    """An address without the user name, password and query that it may hold."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}" if host else "the server"


_Account = tuple[type[ModelError], str, str]


_OTHER_LOOP: _Account = (
    ModelSetupError,
    "this client was used on another event loop before, and a client belongs to one loop.",
    "Give base_url and api_key instead of client: the model then has a client for each loop.",
)


def other_loop(model: str) -> ModelError:
    """The failure of a client that is used on a second event loop."""
    kind, problem, advice = _OTHER_LOOP
    return kind(model, problem, advice)


def _account(error: Exception, address: str, silence_s: float | None, wire: Wire) -> _Account:
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _status_account(status, error, address, wire)
    name = type(error).__name__
    if name == "APITimeoutError" or "Timeout" in name:
        return _timeout_account(error, address, silence_s)
    if isinstance(error, RuntimeError):
        return _OTHER_LOOP
    if isinstance(error, ValueError):
        return _unreadable_account(error, address, wire)
    if name == "APIError" or isinstance(error, ServerSaidError):
        return _broken_off_account(error, address)
    return _connection_account(error, address)


def _unreadable_account(error: ValueError, address: str, wire: Wire) -> _Account:
    if isinstance(error, UnicodeEncodeError):
        return ModelSetupError, "the API key holds a character that no key has.", "Copy it again, without quotes around it."
    if _is_cut(error):
        return ModelError, f"the connection to {address} ended before the answer was complete.", RESUME
    if isinstance(error, UnicodeDecodeError):
        return ModelError, f"{address} sent bytes that are not UTF-8 text.", RESUME
    return ModelError, f"{address} sent something that is not {wire.answer}: {str(error)[:200]}.", RESUME


def _is_cut(error: Exception) -> bool:
    """Whether what came ends in the middle of a character."""
    return isinstance(error, UnicodeDecodeError) and error.end == len(error.object)


def _timeout_account(error: Exception, address: str, silence_s: float | None) -> _Account:
    if any("ConnectTimeout" in type(link).__name__ for link in chain(error)):
        return ModelError, f"{address} does not answer.", f"Check the address and the network. {RESUME}"
    seconds = "too long" if silence_s is None else f"{silence_s:g} s"
    return ModelError, f"{address} was silent for {seconds}.", f"{RESUME} A slow model needs a longer timeout=seconds."


def _connection_account(error: Exception, address: str) -> _Account:
    links = list(chain(error))
    if any(isinstance(link, ConnectionRefusedError) for link in links):
        return ModelSetupError, f"nothing listens at {address}.", "Start the server, or correct base_url."
    if any(isinstance(link, socket.gaierror) for link in links):
        return ModelSetupError, f"the address {address} cannot be found.", "Check its spelling and the network."
    if any(isinstance(link, ssl.SSLError) for link in links):
        advice = "Check the address (http or https?) and its certificate."
        return ModelSetupError, f"no secure connection to {address}: {links[-1]}", advice
    names = {type(link).__name__ for link in links}
    if names & {"UnsupportedProtocol", "InvalidURL"}:
        return ModelSetupError, f"base_url is not a web address: {address}", "It looks like http://localhost:8000/v1."
    if "LocalProtocolError" in names:
        return ModelSetupError, "the API key, or a header, holds a character that is not allowed.", "Copy the key again."
    if "TooManyRedirects" in names:
        return ModelSetupError, f"{address} sends us from place to place.", "Correct base_url."
    if "RemoteProtocolError" in names or "ReadError" in names:
        return ModelError, f"the connection to {address} broke off before the answer was complete.", RESUME
    return ModelError, f"{address} could not be reached: {links[-1] or type(links[-1]).__name__}.", f"Check the network. {RESUME}"


def _status_account(status: int, error: Exception, address: str, wire: Wire) -> _Account:
    said = f'{address} answered {status}: "{_said(error)}"'
    code = str(getattr(error, "code", "") or "")
    match status:
        case 401 | 403:
            return ModelSetupError, f"the key was refused. {said}", "Check OPENAI_API_KEY (or api_key=) and its rights."
        case 404 | 405 | 501:
            advice = f"Check the model's name and base_url (most end in /v1).{wire.unknown}"
            return ModelSetupError, f"no such model or address. {said}", advice
        case 429 if _is_about_money(code):
            return ModelSetupError, f"the account has nothing left to spend. {said}", _BILLING
        case 429:
            return ModelError, f"too many requests. {said}", f"Wait{_wait(error)}. {RESUME}"
        case 400 if "context" in code or re.search(_SAYS_TOO_LONG, said):
            return ConversationTooLongError, f"the conversation is too long for this model. {said}", _TOO_LONG
        case 408 | 504:
            return ModelError, f"the server gave up waiting. {said}", RESUME
        case 409:
            return ModelError, f"another request was in the way. {said}", RESUME
        case _ if status >= _SERVER_FAULT:
            return ModelError, f"the server has a problem. {said}", f"Wait a little. {RESUME}"
        case _:
            return ModelError, f"the request was refused. {said}", _REFUSED


def _broken_off_account(error: Exception, address: str) -> _Account:
    """The failure came after the 200: its kind is in the server's ``code`` only."""
    said = f"{address} broke off with an error: {_said(error)}"
    code = str(getattr(error, "code", "") or "")
    if _is_about_money(code):
        return ModelSetupError, f"the account has nothing left to spend. {said}", _BILLING
    if "rate_limit" in code:
        return ModelError, f"too many requests. {said}", f"Wait a little. {RESUME}"
    if "context" in code:
        return ConversationTooLongError, f"the conversation is too long for this model. {said}", _TOO_LONG
    if "invalid" in code or "policy" in code:
        return ModelError, f"the request was refused. {said}", _REFUSED
    return ModelError, said, RESUME


def _is_about_money(code: str) -> bool:
    return "quota" in code or "billing" in code


def _wait(error: Exception) -> str:
    seconds = _retry_after_s(error)
    return " a little" if seconds is None else f" {seconds:.10g} s"


def _retry_after_s(error: Exception) -> float | None:
    """Seconds until the server wants to be asked again, from its ``Retry-After``; ``None`` where that makes no sense."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    value = str(headers.get("retry-after", "")) if headers is not None else ""
    if re.fullmatch(r"\d{1,12}(\.\d{1,12})?", value):
        seconds = float(value)
    elif headers is None or (when := _date(value)) is None:
        return None
    else:  # by the server's clock, which may differ from ours
        seconds = (when - (_date(str(headers.get("date", ""))) or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if seconds < _ABSURD_SECONDS else None


def _date(text: str) -> datetime | None:
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _said(error: Exception) -> str:
    """What the server said, in one line: its ``error.message``, or the start of what it sent."""
    body: object = getattr(error, "body", None)
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        inner: object = fields.get("error", fields)
        message: object = cast("dict[str, Any]", inner).get("message", inner) if isinstance(inner, dict) else inner
    else:
        message = body or getattr(error, "message", None) or error
    text = " ".join(re.sub(r"<[^>]*>", " ", str(message)).split())
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
