"""Texts from a server with OpenAI's interface: one request, what may go wrong, one answer.

No redirection is followed and no proxy asked: requests go to the server that was named alone: to
its address, and to `/metrics`, which may tell when it started.
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

from otlp.auditing.subject import one_line
from otlp.checks import check_number, whole_number
from otlp.errors import InvalidInputError, ServerError
from otlp.timing import checkpoint, seconds_left
from otlp_lab.servers.background import begin, wait

MOST_BYTES = 2**22
"""Of an answer; a longer one is cut, and so no JSON: it is no completion of a few tokens."""

BUSY = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses after which the same request may succeed."""

_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an answer raises that is no completion; an endless count of tokens the first."""

WAYS_OUT = {
    **dict.fromkeys((401, 403), "name the environment variable that holds its key"),
    **dict.fromkeys((404, 405), "give the address up to /v1, or all, as .../v1/chat/completions"),
    **dict.fromkeys(range(300, 400), "no redirection is followed: name the address it is at"),
}


@dataclass(frozen=True)
class Completion:
    """A text, as a server gave it.

    Attributes
    ----------
    text : str
    finish : str
        Why it ended: "length" after all tokens that were asked for.
    tokens, prompt_tokens : int or None
        As the server counts them; None where it does not say.
    model : str
        What the server calls itself; empty where the request named the model.
    system_fingerprint : str
        What it says of its build and settings; empty where it says nothing.

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
    """A server's completions, called with a prompt.

    Parameters
    ----------
    url : str
        Up to ``/v1``, or the whole address; one that ends in ``chat/completions`` is sent a
        message of the user, which the server puts into its chat template.
    fields : mapping of str to what JSON takes
        What a request says beside the prompt; ``max_tokens`` must be there.
    timeout : float
        Seconds that an answer may take, to its last byte.
    tries : int
        How often a request is sent that finds nobody, or a server that is busy or failing.
    patience : float
        Seconds before the second try; before each further one twice as many and so much more.
    key : str
        Sent as a bearer token where it is not empty.

    Raises
    ------
    InvalidInputError
        If one of them is out of its range, or the address is none.

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
                f"the address {self.url!r} is none: write it as http://127.0.0.1:8080 or "
                "https://name/v1, without a user, ? and #"
            )
        whole_number(self.fields.get("max_tokens"), "max_tokens", 1)
        whole_number(self.tries, "tries", 1)
        check_number("timeout", self.timeout, lambda x: 0.0 < x < 2**31, "be seconds, above 0")
        check_number("patience", self.patience, lambda x: 0.0 <= x < 2**31, "be seconds")

    @property
    def address(self) -> str:
        """Where requests go."""
        url = self.url.rstrip("/")
        if url.endswith("/completions"):
            return url
        return url + ("/completions" if url.endswith("/v1") else "/v1/completions")

    def __call__(self, prompt: str) -> Completion:
        """Ask for one text.

        Raises
        ------
        ServerError
            If nobody answers in `tries` tries, the server refuses, answers as another model than
            it was asked for, gives fewer or more tokens, or what is no completion.
        TimeoutError
            If the time limit of an audit is over first.
        """
        for attempt in range(self.tries):
            time.sleep(max(0.0, min(self.patience * (2**attempt - 1), seconds_left())))
            checkpoint()
            try:
                status, body = self._post(prompt)
            except TimeoutError:
                trouble = f"no answer within {self.timeout:g} s: raise timeout, or lower max_tokens"
            except (OSError, HTTPException) as error:
                trouble = f"{type(error).__name__}: {one_line(error)}: is it running there?"
            else:
                if status == 200:
                    return self._read(body)
                trouble = f"status {status}: {_message(body)}"
                if status not in BUSY:
                    way_out = WAYS_OUT.get(status, "change what is asked, or the server")
                    raise self._error(f"{trouble}; {way_out}")
        raise self._error(f"{trouble} ({self.tries} tries)")

    def started(self) -> float | None:
        """When the server's process began, by its metrics; None if these do not tell."""
        try:
            status, body = self._exchange("GET", "/metrics")
        except (TimeoutError, OSError, HTTPException):
            return None
        found = re.search(rb"^process_start_time_seconds ([0-9.e+]+)", body, re.MULTILINE)
        return float(found[1]) if status == 200 and found else None

    def _post(self, prompt: str) -> tuple[int, bytes]:
        path = urlsplit(self.address).path
        chat = path.endswith("/chat/completions")
        said = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        return self._exchange("POST", path, json.dumps({**said, **self.fields}).encode())

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
            # the timeout of a socket is one of each of its steps, of which a server may make many
            return wait(begin(exchange), self.timeout)
        finally:
            for opened in sockets:
                with suppress(OSError):
                    opened.shutdown(SHUT_RDWR)

    def _read(self, body: bytes) -> Completion:
        """Read an answer, and check it against what was asked."""
        try:
            answer = json.loads(body)
            choice = answer["choices"][0]
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            usage = answer.get("usage") or {}
            counts = (usage.get(f"{what}_tokens") for what in ("completion", "prompt"))
            tokens, prompt_tokens = (None if count is None else int(count) for count in counts)
            finish, model = str(choice.get("finish_reason")), str(answer.get("model") or "")
            build = str(answer.get("system_fingerprint") or "")
        except (
            ArithmeticError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            text = None
        if not isinstance(text, str):
            raise self._error(f"no completion: {_message(body)}; is it OpenAI's interface?")
        if named := self.fields.get("model"):
            if model != named:
                raise self._error(f"asked for the model {named!r}, it answers as {model!r}")
            model = ""
        asked = self.fields["max_tokens"]
        if tokens is not None and (tokens > asked or (tokens < asked and finish == "length")):
            raise self._error(
                f"{tokens} tokens where {asked} were asked for: ask for as many as it gives, or "
                "lift its own limit"
            )
        return Completion(text, finish, tokens, prompt_tokens, model, build)

    def _error(self, what: str) -> ServerError:
        return ServerError(f"{self.address}: {what}")


def _message(body: bytes) -> str:
    """What a server says went wrong, in a line."""
    return one_line(Exception(" ".join(body.decode(errors="replace").split()))) or "empty answer"
