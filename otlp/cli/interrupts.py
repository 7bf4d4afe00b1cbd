"""A Ctrl-C that arrives, whatever is running when it comes.

Python raises KeyboardInterrupt between any two instructions.  Raised in a callback from C it is
printed and dropped; raised while a compiled module is imported it becomes an ImportError, which
may pass for a package that is not installed.  So it is tried again a little later; for some
seconds only, since a file that is imported may run for ever.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN = 0.05
"""Seconds to the next try."""

PATIENCE = 10.0
"""Seconds that an import gets to finish."""


@contextmanager
def interrupts_arrive() -> Iterator[None]:
    """Within, Ctrl-C raises KeyboardInterrupt where it is heard, at the latest on leaving.

    An import is finished first, if it takes no longer than `PATIENCE`.  Where somebody else
    handles the signal, or in another thread than the main one, nothing changes.

    Examples
    --------
    >>> from otlp.cli.interrupts import interrupts_arrive
    >>> with interrupts_arrive():
    ...     pass
    """
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if (
        before is not signal.default_int_handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    heard = 0.0
    pending: threading.Timer | None = None

    def try_again() -> None:
        nonlocal pending
        pending = threading.Timer(AGAIN, _thread.interrupt_main)
        pending.daemon = True
        pending.start()

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        now = time.monotonic()
        heard = heard or now
        if now - heard < PATIENCE and _importing(frame):
            try_again()
        else:
            raise KeyboardInterrupt

    def dropped(found: Any) -> None:
        if found.exc_type is KeyboardInterrupt:
            try_again()
        elif not heard:
            hook(found)

    signal.signal(signal.SIGINT, hear)
    sys.unraisablehook = dropped
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook
        if pending is not None and pending.is_alive():
            pending.cancel()
            raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
