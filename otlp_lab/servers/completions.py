"""Client for texts from a server with OpenAI's interface.

Redirections and proxies are not used.  Requests go only to the given server: to its address, and to
`/metrics`, which may contain its start time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from socket import SHUT_RDWR, socket
from typing import Any
from urllib.parse import urlsplit

from otlp.checks import check_number, whole_number
from otlp.errors import InvalidInputError, ServerError, one_line
from otlp.timing import checkpoint, seconds_left
from otlp_lab.servers.background import begin, wait

MOST_BYTES = 2**22
"""Maximum size of an answer; a longer answer is truncated and therefore invalid JSON."""

BUSY = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses after which the same request may succeed."""

_INVALID = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions of parsing an invalid answer; ArithmeticError for an infinite number of tokens."""

WAYS_OUT = {
    **dict.fromkeys((401, 403), "give the environment variable with its key"),
    **dict.fromkeys((404, 405), "give the address up to /v1, or in full: .../v1/chat/completions"),
    **dict.fromkeys(range(300, 400), "redirections are not followed: give the new address"),
}


@dataclass(frozen=True)
class Completion:
    """Answer of a server.

    Attributes
    ----------
    text : str
    finish : str
        Finish reason; "length" after all requested tokens.
    tokens, prompt_tokens : int or None
        Numbers of tokens reported by the server; None if not reported.
    model : str
        Model name reported by the server; empty if the request named the model.
    system_fingerprint : str
        Fingerprint of build and settings reported by the server; empty if not reported.

    Examples
    --------
    >>> from otlp_lab.servers import Completion
    >>> Completion(" is Paris.", "length", 3, 4).text
    ' is Paris.'
    """

    text: str
    finish: str = "length"
    tokens: int | None = None
    prompt_tokens: int | None = None
    model: str = ""
    system_fingerprint: str = ""


@dataclass(frozen=True)
class Completions:
    """Client for completions of a server, called with a prompt.

    Parameters
    ----------
    url : str
        Address up to ``/v1``, or in full.  Requests to an address that ends in
        ``chat/completions`` contain a user message, which the server inserts into its chat
        template.
    fields : mapping of str to JSON value
        Fields of the request in addition to the prompt; must include ``max_tokens``.
    timeout : float
        Maximum seconds until the last byte of an answer.
    tries : int
        Maximum number of attempts if the server is unreachable, busy or failing.
    patience : float
        Wait after the first attempt in seconds; the waits are `patience` times 1, 3, 7, ...
    key : str
        Bearer token, default none.

    Raises
    ------
    InvalidInputError
        If a parameter is out of range, or the address is invalid.

    Examples
    --------
    >>> from otlp_lab.servers import Completions
    >>> Completions("http://127.0.0.1:8080", {"max_tokens": 5}).address
    'http://127.0.0.1:8080/v1/completions'
    """

    url: str
    fields: Mapping[str, Any]
    timeout: float = 60.0
    tries: int = 5
    patience: float = 0.5
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except (ValueError, AttributeError):
            known = False
        if not known or parts.username or parts.query or parts.fragment:
            raise InvalidInputError(
                "the address must be written as http://127.0.0.1:8080 or https://name/v1, without "
                f"user, ? and #; got {self.url!r}"
            )
        whole_number(self.fields.get("max_tokens"), "max_tokens", 1)
        whole_number(self.tries, "tries", 1)
        check_number("timeout", self.timeout, lambda x: 0.0 < x < 2**31, "be seconds, above 0")
        check_number("patience", self.patience, lambda x: 0.0 <= x < 2**31, "be seconds")

    @property
    def address(self) -> str:
        """Full address of requests."""
        url = self.url.rstrip("/")
        if url.endswith("/completions"):
            return url
        return url + ("/completions" if url.endswith("/v1") else "/v1/completions")

    def __call__(self, prompt: str) -> Completion:
        """Request one text.

        Raises
        ------
        ServerError
            If there is no answer in `tries` attempts, the server rejects the request, the answer
            is not a completion, or it has another model or number of tokens than requested.
        TimeoutError
            If the time limit of an audit is reached first.
        """
        for attempt in range(self.tries):
            time.sleep(max(0.0, min(self.patience * (2**attempt - 1), seconds_left())))
            checkpoint()
            try:
                status, body = self._post(prompt)
            except TimeoutError:
                reason = f"no answer within {self.timeout:g} s: raise timeout, or lower max_tokens"
            except (OSError, HTTPException) as error:
                reason = f"{type(error).__name__}: {one_line(error)}: is it running there?"
            else:
                if status == 200:
                    return self._read(body)
                reason = f"status {status}: {_message(body)}"
                if status not in BUSY:
                    way_out = WAYS_OUT.get(status, "change the request, or the server")
                    raise self._error(f"{reason}; {way_out}")
        raise self._error(f"{reason} ({self.tries} tries)")

    def started(self) -> float | None:
        """Return the start time of the server's process from its metrics; None if unknown."""
        try:
            status, body = self._exchange("GET", "/metrics")
        except (TimeoutError, OSError, HTTPException):
            return None
        found = re.search(rb"^process_start_time_seconds ([0-9.e+]+)", body, re.MULTILINE)
        return float(found[1]) if status == 200 and found else None

    def _post(self, prompt: str) -> tuple[int, bytes]:
        path = urlsplit(self.address).path
        chat = path.endswith("/chat/completions")
        text = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        return self._exchange("POST", path, json.dumps({**text, **self.fields}).encode())

    def _exchange(self, method: str, path: str, content: bytes = b"") -> tuple[int, bytes]:
        parts = urlsplit(self.address)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers = {"Content-Type": "application/json", **key}
        sockets = list[socket]()

        def exchange() -> tuple[int, bytes]:
            address = str(parts.hostname), parts.port
            with closing(connect(*address, timeout=self.timeout)) as connection:
                connection.connect()
                sockets.append(connection.sock)
                connection.request(method, path, content or None, headers)
                response = connection.getresponse()
                body = response.read(MOST_BYTES)
                if response.length and len(body) < MOST_BYTES:
                    raise IncompleteRead(body, response.length)
                return response.status, body

        try:
            # A socket's own timeout applies to each step, and a server may need many steps.
            return wait(begin(exchange), self.timeout)
        finally:
            for opened in sockets:
                with suppress(OSError):
                    opened.shutdown(SHUT_RDWR)

    def _read(self, body: bytes) -> Completion:
        """Parse an answer, and check it against the request."""
        try:
            answer = json.loads(body)
            choice = answer["choices"][0]
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            usage = answer.get("usage") or {}
            counts = (usage.get(f"{what}_tokens") for what in ("completion", "prompt"))
            tokens, prompt_tokens = (None if count is None else int(count) for count in counts)
            finish, model = str(choice.get("finish_reason")), str(answer.get("model") or "")
            build = str(answer.get("system_fingerprint") or "")
        except _INVALID:
            text = None
        if not isinstance(text, str):
            raise self._error(f"not a completion: {_message(body)}; is it OpenAI's interface?")
        if named := self.fields.get("model"):
            if model != named:
                raise self._error(f"requested the model {named!r}, got an answer from {model!r}")
            model = ""
        most = self.fields["max_tokens"]
        if tokens is not None and (tokens > most or (tokens < most and finish == "length")):
            raise self._error(
                f"{tokens} tokens instead of the requested {most}: change max_tokens, or the "
                "server's own limit"
            )
        return Completion(text, finish, tokens, prompt_tokens, model, build)

    def _error(self, what: str) -> ServerError:
        return ServerError(f"{self.address}: {what}")


def _message(body: bytes) -> str:
    """Return a server's error message on one line."""
    return one_line(Exception(" ".join(body.decode(errors="replace").split()))) or "empty answer"
