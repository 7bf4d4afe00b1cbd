"""Calls in threads that do not delay time limits or the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import TIMEOUT_MAX, Thread
from typing import TypeVar

from otlp.timing import seconds_left

Result = TypeVar("Result")


def begin(call: Callable[[], Result]) -> Future[Result]:
    """Start a call in its own thread, under the current deadline."""
    future, context = Future[Result](), copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # raised again in `wait`
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def wait(future: Future[Result], seconds: float = TIMEOUT_MAX) -> Result:
    """Return the result of a call within `seconds` and before the deadline.

    Raises
    ------
    TimeoutError
        If the call has not finished in time; the thread continues.
    """
    return future.result(min(seconds, seconds_left(), TIMEOUT_MAX))
