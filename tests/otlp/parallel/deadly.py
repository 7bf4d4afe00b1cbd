"""A task that kills its worker."""

from __future__ import annotations

import os
import signal


def deadly(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number
