"""A small local server with the OpenAI API, and texts of known laws for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from typing import Any

import numpy as np

from otlp.distribution import FloatArray
from otlp_lab.servers import Completion

Reply = Callable[[str, dict[str, Any]], tuple[int, Any]]
"""Function of path and request that returns status and answer; non-strings are sent as JSON."""


@contextmanager
def serving(reply: Reply, length: int | None = None) -> Iterator[str]:
    """Return the address of a server with these replies and this declared content length."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer({**asked, "authorization": self.headers.get("Authorization")})

        def _answer(self, asked: dict[str, Any]) -> None:
            status, answer = reply(self.path, asked)
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            try:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", answer)
                self.send_header("Content-Length", str(length or len(body)))
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                pass  # the client has disconnected

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def dripping(headers: bool) -> Iterator[str]:
    """Return the address of a server that sends a byte of a header or answer every 0.05 s."""
    head = b"HTTP/1.1 200 OK\r\n" + (b"X-Long: " if headers else b"Content-Length: 9999\r\n\r\n")

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(head)
                while not over.wait(0.05):
                    self.request.sendall(b"x")

    over = Event()
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def completion(text: str, tokens: int = 2, **more: Any) -> dict[str, Any]:
    """Return a reply of the completions API."""
    return {
        "model": "tiny",
        "choices": [{"text": text, "finish_reason": "length"}],
        "usage": {"completion_tokens": tokens, "prompt_tokens": 3},
        **more,
    }


@cache
def texts_of(words: int) -> tuple[list[str], FloatArray]:
    """Return all texts of two words, and their probabilities."""
    zipf = 1.0 / np.arange(1, words + 1) ** 1.1
    texts = [f" w{i} w{j}" for i in range(words) for j in range(words)]
    fair = np.outer(zipf, zipf).reshape(-1) * np.random.default_rng(7).gamma(1.0, 1.0, words**2)
    return texts, fair / fair.sum()


class Law:
    """Texts of two words, from a law of 900 texts per prompt; a call draws a text."""

    def __init__(self, seed: int, bias: float = 0.0, words: int = 30) -> None:
        self.rng = np.random.default_rng(seed)
        self.texts, self.fair = texts_of(words)
        onto = np.zeros(words**2)
        onto[int(np.argsort(self.fair)[words**2 // 2])] = 1.0
        self.law = (1.0 - bias) * self.fair + bias * onto
        self.steps = np.cumsum(self.law)

    def __call__(self, prompt: str = "") -> Completion:
        place = int(np.searchsorted(self.steps, self.rng.random() * self.steps[-1], side="right"))
        return Completion(self.texts[place], "length", 2, 3, "tiny")
