"""A small engine with random numbers of its own, right, and with the mistakes of engines."""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTH = 2

STEP = LENGTH + LENGTH + 1
"""Numbers, or races, of a round: one a draft, one a coin, one for the last token."""


class Engine:
    """Drafts a path and verifies it, both with numbers at offsets into one stream."""

    def __init__(self, size: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.numbers = rng.random(1_000_000)
        self.races = rng.exponential(size=(1_000_000, size))
        self.offset = 0

    def draft(self, tables: Any, rows: int) -> Any:
        path: list[int] = []
        for at in range(LENGTH):
            path.append(self.drawn(self.law(tables[at][tuple(path)]), self.offset + at))
        return [path]

    def verify(self, x: Any, p: Any, q: Any, rng: Any) -> list[int]:
        text = self.text(x[0], p[0], q[0])
        self.offset += self.used(text)
        return text

    def text(self, path: Any, p: Any, q: Any) -> list[int]:
        for at, token in enumerate(path):
            if self.coin(self.offset + LENGTH + at) * q[at, token] >= p[at, token]:
                left = np.maximum(p[at] - q[at], 0.0)
                return [*path[:at], self.drawn(left / left.sum(), self.last(at))]
        return [*path, self.drawn(p[LENGTH], self.last(LENGTH))]

    def drawn(self, law: Any, offset: int) -> int:
        """By a race, as with Gumbel's numbers."""
        if not np.isfinite(law).all():
            raise ValueError("a residual that is empty")
        return int(np.argmin(self.races[offset] / np.maximum(law, 1e-300)))

    def law(self, law: Any) -> Any:
        return law

    def coin(self, offset: int) -> float:
        return self.numbers[offset]

    def last(self, at: int) -> int:
        """Where the last token's race stands."""
        return self.offset + 2 * LENGTH

    def used(self, text: Any) -> int:
        return STEP


class OneStream(Engine):
    """The race of a residual is that of the draft it replaces (vllm-project/vllm#54282)."""

    def last(self, at: int) -> int:
        return self.offset + at


class AdvancedByAccepted(Engine):
    """The counter goes on by what was given, not by what was drawn."""

    def used(self, text: Any) -> int:
        return len(text)


class Replayed(Engine):
    """Every second round has the numbers of the one before, as a graph that is replayed."""

    rounds = 0

    def used(self, text: Any) -> int:
        self.rounds += 1
        return 0 if self.rounds % 2 else STEP


class CoinOfOne(Engine):
    """A coin of eight bits, which may be 1.0: a draft that is certain to pass is rejected."""

    def coin(self, offset: int) -> float:
        return round(self.numbers[offset] * 256) / 256


class OtherPrecision(Engine):
    """Drafts from logits in bfloat16, spaced by .5 between 64 and 128; q is handed over exact."""

    def law(self, law: Any) -> Any:
        logits = np.log(np.maximum(law, 1e-30)) + 96.0
        weights = np.exp(np.round(logits * 2) / 2 - 96.0)
        return weights / weights.sum()


class SharedRows(Engine):
    """Two rows of a batch have the same numbers."""

    def draft(self, tables: Any, rows: int) -> Any:
        return np.repeat(super().draft(tables, 1), rows, axis=0)

    def verify(self, x: Any, p: Any, q: Any, rng: Any) -> Any:
        texts = [self.text(*row) for row in zip(x[:, 0], p[:, 0], q[:, 0], strict=True)]
        self.offset += STEP
        return [[*text, *[-1] * (LENGTH + 1 - len(text))] for text in texts]


class OwnRows(SharedRows):
    """Each row has numbers of its own."""

    def draft(self, tables: Any, rows: int) -> Any:
        paths = []
        for row in range(rows):
            self.offset += row * STEP
            paths += Engine.draft(self, tables, 1)
            self.offset -= row * STEP
        return paths

    def verify(self, x: Any, p: Any, q: Any, rng: Any) -> Any:
        texts = [Engine.verify(self, x[row], p[row], q[row], rng) for row in range(len(x))]
        return [[*text, *[-1] * (LENGTH + 1 - len(text))] for text in texts]
