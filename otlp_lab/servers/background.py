"""Calls in threads that neither a limit of time nor the end of the process has to wait for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import TIMEOUT_MAX, Thread
from typing import TypeVar

from otlp.timing import seconds_left

Result = TypeVar("Result")


def begin(call: Callable[[], Result]) -> Future[Result]:
    """Call it in a thread of its own, under the deadline that holds here."""
    future, context = Future[Result](), copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # whoever waits raises it
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def wait(future: Future[Result], seconds: float = TIMEOUT_MAX) -> Result:
    """Its result, within so many seconds and before the deadline.

    Raises
    ------
    TimeoutError
        If it is not there then; the thread goes on.
    """
    return future.result(min(seconds, seconds_left(), TIMEOUT_MAX))
