"""Rules with input other than their arguments and rng are never reported as lossless.

Each rule deviates so rarely that repetition does not detect it. The tests check that the source
of the deviation is detected.
"""

from __future__ import annotations

import array
import ctypes
import decimal
import itertools
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from cProfile import Profile
from datetime import datetime
from functools import partial
from os import urandom
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

import otlp
from otlp.auditing import AuditSettings, Verdict, audit
from tests.otlp.auditing import rules
from tests.otlp.auditing.rules import P, Q

NEVER = 1e-12

PRIVATE = np.random.default_rng(3)
LEGACY = np.random.RandomState(3)
PYTHON = random.Random(3)
STEPS = itertools.count()
COMPILED: Any = njit(lambda: np.random.random())
calls = 0


def counted() -> bool:
    global calls
    calls += 1
    return calls > 10**9


class Counter:
    """A rule that counts its calls in a slot attribute."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, d: Any, p: Any, q: Any, rng: Any) -> Any:
        self.count += 1
        return 0 if self.count > 10**9 else rules.leviathan(d, p, q, rng)

    def method(self, d: Any, p: Any, q: Any, rng: Any) -> Any:
        return self(d, p, q, rng)


class Shared:
    count = 0


def counted_by_a_class() -> bool:
    Shared.count += 1
    return Shared.count > 10**9


def default(d: Any, p: Any, q: Any, rng: Any, seen: list[int] = [0]) -> Any:  # noqa: B006
    seen[0] += 1
    return 0 if seen[0] > 10**9 else rules.leviathan(d, p, q, rng)


def departing(when: Callable[[], bool]) -> Any:
    def rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        return 0 if when() else rules.leviathan(draft_tokens, p, q, rng)

    return rule


class Day(datetime):
    """A user-defined class of dates."""


BYTES, VIEWED, NUMBERS = bytearray(1), memoryview(bytearray(1)), array.array("q", [0])
NATIVE, OBJECTS = ctypes.c_long(0), np.array([0], dtype=object)
DECIMALS, VARIABLE = [decimal.Decimal(0)], ContextVar("count", default=0)
RANGE = iter(range(10**9))


def counted_in(memory: Any) -> Callable[[], bool]:
    def count() -> bool:
        memory[0] = (memory[0] + 1) % 251
        return False

    return count


def counted_natively() -> bool:
    NATIVE.value += 1
    return False


def counted_in_a_variable() -> bool:
    VARIABLE.set(VARIABLE.get() + 1)
    return False


def counted_in_the_environment() -> bool:
    os.environ["OTLP_TEST_COUNT"] = str(int(os.environ.get("OTLP_TEST_COUNT", "0")) + 1)
    return False


SOURCES: dict[str, tuple[Any, str]] = {
    "random": (departing(lambda: random.random() < NEVER), "from random, a global random gen"),
    "numpy's global generator": (departing(lambda: np.random.rand() < NEVER), "from numpy.random"),
    "secrets": (departing(lambda: secrets.randbelow(10**12) == 0), "os.urandom"),
    "os.urandom": (departing(lambda: os.urandom(8) == bytes(8)), "os.urandom"),
    "urandom by name": (departing(lambda: urandom(8) == bytes(8)), "os.urandom"),
    "uuid": (departing(lambda: uuid.uuid4().int == 0), "os.urandom"),
    "default_rng()": (departing(lambda: np.random.default_rng().random() < NEVER), "os.urandom"),
    "Random()": (departing(lambda: random.Random().random() < NEVER), "without a seed"),
    "time": (departing(lambda: time.time() < 0.0), "time.time"),
    "datetime": (departing(lambda: datetime.now().year < 0), "datetime.now"),
    "id": (departing(lambda: id(object()) < 0), "uses id"),
    "own generator": (departing(lambda: PRIVATE.random() < NEVER), "keeps state"),
    "own legacy generator": (departing(lambda: LEGACY.rand() < NEVER), "keeps state"),
    "own Random": (departing(lambda: PYTHON.random() < NEVER), "keeps state"),
    "own generator alone": (
        lambda d, p, q, rng: rules.leviathan(d, p, q, PRIVATE),
        "randomness other than rng",
    ),
    "numba": (departing(lambda: COMPILED() < NEVER), "from numba"),
    "itertools": (departing(lambda: next(STEPS) > 10**9), "keeps state"),
    "global counter": (departing(counted), "keeps state"),
    "counter of a class": (departing(counted_by_a_class), "keeps state"),
    "counter in a slot": (Counter(), "keeps state"),
    "counter of a method": (Counter().method, "keeps state"),
    "counter in a default": (default, "keeps state"),
    "partial": (partial(default, seen=[0]), "keeps state"),
    "bytes": (departing(counted_in(BYTES)), "keeps state"),
    "a view of bytes": (departing(counted_in(VIEWED)), "keeps state"),
    "array of numbers": (departing(counted_in(NUMBERS)), "keeps state"),
    "array of objects": (departing(counted_in(OBJECTS)), "keeps state"),
    "decimal": (departing(counted_in(DECIMALS)), "keeps state"),
    "number of C": (departing(counted_natively), "keeps state"),
    "context variable": (departing(counted_in_a_variable), "keeps state"),
    "environment": (departing(counted_in_the_environment), "keeps state"),
    "iterator": (departing(lambda: next(RANGE) > 10**9), "keeps state"),
    "today": (departing(lambda: datetime.today().year < 0), "datetime.today"),
    "another class of dates": (departing(lambda: Day.now().year < 0), "Day.now"),
    "times": (departing(lambda: os.times().elapsed < 0), "os.times"),
    "address by hash": (departing(lambda: hash(object()) == 1), "uses hash"),
    "address by repr": (departing(lambda: not repr(object())), "uses repr"),
    "file by its path": (departing(lambda: not Path(__file__).read_bytes()), "uses open"),
}


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize("name", SOURCES)
def test_the_source_is_named(name: str) -> None:
    rule, words = SOURCES[name]
    report = audit(rule, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000))
    assert report.verdict is Verdict.NOT_REJECTED
    assert words in report.why_sampled


def test_a_seed_of_torch() -> None:
    torch = pytest.importorskip("torch")
    rule = departing(lambda: torch.Generator().seed() < 0)
    report = audit(rule, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000))
    assert report.verdict is Verdict.NOT_REJECTED
    assert "torch.Generator.seed" in report.why_sampled


@pytest.mark.parametrize("module", [False, True])
def test_a_counter_in_a_tensor(module: bool) -> None:
    torch = pytest.importorskip("torch")
    count = torch.zeros(2, dtype=torch.bfloat16 if module else torch.int64)
    holder = torch.nn.Module()
    holder.register_buffer("count", count)
    held = holder if module else None

    def counted_in_it() -> bool:
        (held.count if held is not None else count)[1] += 1
        return False

    report = audit(
        departing(counted_in_it), P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000)
    )
    assert "keeps state" in report.why_sampled


@pytest.mark.parametrize("kind", ["global", "own"])
def test_draws_of_torch_are_followed(kind: str) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator() if kind == "own" else None

    def draw() -> bool:
        return bool(torch.rand(1, dtype=torch.float64, generator=generator) < 1e-5)

    report = audit(departing(draw), P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000))
    assert report.method == "enumeration"
    assert report.verdict is Verdict.NOT_LOSSLESS


def test_one_in_a_hundred_by_an_unseen_way_is_found_by_repetition() -> None:
    """Compiled code makes the call, and no profile function sees it."""
    deviate = departing(lambda: next(map(urandom, [2])) < b"\x02\x8f")
    report = audit(deviate, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000))
    assert report.verdict is not Verdict.LOSSLESS
    assert "the path was repeated with" in report.why_sampled


def test_another_answer_at_the_first_call() -> None:
    seen: list[int] = []

    def once(d: Any, p: Any, q: Any, rng: Any) -> Any:
        if not seen:
            seen.append(1)
            return None
        return rules.leviathan(d, p, q, rng)

    assert (
        audit(once, P, otlp.IID(Q, 1), settings=AuditSettings(samples=1_000)).verdict
        is Verdict.NOT_REJECTED
    )


@pytest.mark.usefixtures("few_repetitions")
def test_a_sampler_of_drafts_is_watched_too() -> None:
    def sampler(rng: Any) -> Any:
        secrets.token_bytes(1)
        return rng.choice(5, size=1, p=Q)

    report = audit(
        rules.leviathan, P, sampler, declared=otlp.IID(Q, 1), settings=AuditSettings(samples=1_000)
    )
    assert report.verdict is Verdict.NOT_REJECTED
    assert "os.urandom" in report.why_sampled


@pytest.mark.usefixtures("few_calls")
def test_what_is_harmless_stays_exact() -> None:
    cache: dict[int, Any] = {}

    def caching(d: Any, p: Any, q: Any, rng: Any) -> Any:
        ratio = cache.setdefault(int(d[0]), p[d[0]] / q[d[0]])
        if rng.random() < ratio:
            return d[0]
        residual = np.maximum(p - q, 0.0)
        return rng.choice(len(p), p=residual / residual.sum())

    def seeded(d: Any, p: Any, q: Any, rng: Any) -> Any:
        np.random.default_rng(5).random()
        random.Random(5).random()
        return rules.leviathan(d, p, q, rng)

    for rule in (caching, seeded):
        report = audit(rule, P, otlp.IID(Q, 1))
        assert report.verdict is Verdict.LOSSLESS, str(report)
        assert report.repetitions >= 2_000


@pytest.mark.usefixtures("few_repetitions")
def test_a_profiler_that_runs_goes_on() -> None:
    """The profiler of Python is not a function that `sys.setprofile` could restore."""
    with Profile() as profiler:
        report = audit(rules.leviathan, P, otlp.IID(Q, 1))
        sorted([2, 1])
    assert report.verdict is Verdict.LOSSLESS
    assert any("sorted" in str(entry.code) for entry in profiler.getstats())
