"""A small engine with its own random numbers, and variants with typical mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTH = 2

STEP = LENGTH + LENGTH + 1
"""Numbers or races per round: one per draft, one per coin, one for the last token."""


class Engine:
    """Drafts and verifies a path with random numbers at offsets into one stream."""

    def __init__(self, size: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.numbers = rng.random(100_000)
        self.races = rng.exponential(size=(100_000, size))
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
        """Draw by a race, as with Gumbel noise."""
        if not np.isfinite(law).all():
            raise ValueError("a residual that is empty")
        return int(np.argmin(self.races[offset] / np.maximum(law, 1e-300)))

    def law(self, law: Any) -> Any:
        return law

    def coin(self, offset: int) -> float:
        return self.numbers[offset]

    def last(self, at: int) -> int:
        """Return the offset of the race of the last token."""
        return self.offset + 2 * LENGTH

    def used(self, text: Any) -> int:
        return STEP


class OneStream(Engine):
    """Reuses the race of the draft for the residual (vllm-project/vllm#54282)."""

    def last(self, at: int) -> int:
        return self.offset + at


class SharedRatios(Engine):
    """Samples drafts with the target's noise, but compares ratios (vllm-project/vllm#47386)."""

    def last(self, at: int) -> int:
        return self.offset + at

    def used(self, text: Any) -> int:
        # The noise belongs to the position in the text, and the coins follow.
        return len(text)

    def coin(self, offset: int) -> float:
        self.coins = getattr(self, "coins", 0) + 1
        return self.numbers[self.coins]


class SharedNoise(SharedRatios):
    """Samples drafts with the target's noise, and accepts drafts that equal its tokens."""

    def text(self, path: Any, p: Any, q: Any) -> list[int]:
        text: list[int] = []
        for at, token in enumerate([*path, None]):
            text.append(self.drawn(p[at], self.offset + at))
            if text[-1] != token:
                break
        return text


class AdvancedByAccepted(Engine):
    """Advances the counter by the number of output tokens instead of drawn numbers."""

    def used(self, text: Any) -> int:
        return len(text)


class Replayed(Engine):
    """Repeats the numbers of the previous round in every second round, as in a replayed graph."""

    rounds = 0

    def used(self, text: Any) -> int:
        self.rounds += 1
        return 0 if self.rounds % 2 else STEP


class CoinOfOne(Engine):
    """Uses a coin of eight bits that may be 1.0: a certain draft token is rejected."""

    def coin(self, offset: int) -> float:
        return round(self.numbers[offset] * 256) / 256


class OtherPrecision(Engine):
    """Drafts from bfloat16 logits, spaced by 0.5 between 64 and 128, but passes the exact q."""

    def law(self, law: Any) -> Any:
        logits = np.log(np.maximum(law, 1e-30)) + 96.0
        weights = np.exp(np.round(logits * 2) / 2 - 96.0)
        return weights / weights.sum()


class SharedRows(Engine):
    """Uses the same numbers for two rows of a batch."""

    def draft(self, tables: Any, rows: int) -> Any:
        return np.repeat(super().draft(tables, 1), rows, axis=0)

    def verify(self, x: Any, p: Any, q: Any, rng: Any) -> Any:
        texts = [self.text(*row) for row in zip(x[:, 0], p[:, 0], q[:, 0], strict=True)]
        self.offset += STEP
        return [[*text, *[-1] * (LENGTH + 1 - len(text))] for text in texts]


class OwnRows(SharedRows):
    """Uses separate numbers for each row."""

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
