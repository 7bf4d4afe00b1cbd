"""A random generator that returns given numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Replaying:
    """A random generator that returns the given numbers in order."""

    def __init__(self, *numbers: npt.ArrayLike) -> None:
        self.numbers = [np.asarray(number) for number in numbers]

    def random(self, size: Any = None) -> Any:
        return self.numbers.pop(0).reshape(() if size is None else size)[()]
