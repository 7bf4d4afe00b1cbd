"""A verifier in any language: a process that reads and writes one JSON object per line.

If the process receives its uniform numbers from otlp, its exact law is computed as for a rule in
Python: bisection finds a threshold at which the answers change, and both sides are explored.
"""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ClassVar, NoReturn

import numpy as np

from otlp.auditing.audited_rule import NotJudgedError
from otlp.auditing.lazy_uniform import LazyUniform
from otlp.auditing.random_source import RandomSource
from otlp.checks import whole_number
from otlp.errors import InvalidInputError, one_line

ANSWER_TIMEOUT = 20.0
"""Maximum time per answer, in seconds."""

MOST_BYTES = 2**20
"""Maximum size of an answer, in bytes."""

MOST_NUMBERS = 6
"""Maximum number of uniform numbers per case for which the law is enumerated."""

PROBE_MARGIN = 1e-6
"""Margin from both ends of an interval, as a fraction of its length."""

_RUNNING: list[_Process] = []
"""Processes are stored here because changing attributes of a rule would count as hidden state."""


class _Process:
    def __init__(self, command: str) -> None:
        try:
            words = shlex.split(command)
            self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except (OSError, ValueError, IndexError) as error:
            raise InvalidInputError(
                f"command is {command!r}: it cannot be started ({error})"
            ) from None
        self.answered = 0
        self.known: dict[str, Any] = {}
        self.lines: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        while line := self.child.stdout.readline(MOST_BYTES):
            self.lines.put(line)
        self.lines.put(b"")

    def ask(self, cases: Sequence[str]) -> list[Any]:
        """Write all cases, then return their answers."""
        assert self.child.stdin is not None
        first = self.answered
        numbered = (f'{{"id": {first + at}, {case}}}\n' for at, case in enumerate(cases))
        with suppress(BrokenPipeError):  # Answers written before the process ended are read below.
            self.child.stdin.write("".join(numbered).encode())
            self.child.stdin.flush()
        found = [self._answer(first + at) for at in range(len(cases))]
        if not self.lines.empty() and (line := self.lines.get()):
            self._give_up(f"wrote more answers than cases: {one_line(line)}")
        return found

    def _answer(self, number: int) -> Any:
        try:
            line = self.lines.get(timeout=ANSWER_TIMEOUT)
        except Empty:
            self._give_up(f"did not answer case {number} within {ANSWER_TIMEOUT:g} s")
        if not line:
            status = self.child.wait(ANSWER_TIMEOUT)
            self._give_up(f"exited with status {status} before answering case {number}")
        if not line.endswith(b"\n"):
            self._give_up(
                f"answered case {number} with more than {MOST_BYTES:,} bytes or without a newline"
            )
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "id" not in answer:
            self._give_up(
                f'answered case {number} with {one_line(line)}: it must be JSON with an "id"'
            )
        answer = {key: _whole(value) for key, value in answer.items()}
        if isinstance(answer["id"], bool) or answer["id"] != number:
            self._give_up(
                f"answered case {answer['id']!r:.20}, expected case {number}: keep the order"
            )
        if "token" not in answer and "tokens" not in answer:
            self._give_up(
                f'answered case {number} without "token" or "tokens": the keys are '
                f"{', '.join(answer)[:80]}"
            )
        self.answered = number + 1
        return answer.get("tokens", answer.get("token"))

    def _give_up(self, reason: str) -> NoReturn:
        self.child.kill()
        raise NotJudgedError(f"the command {reason}")


def _whole(value: Any) -> Any:
    """Convert integral floats to int (1.0 to 1), also in lists."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class CommandRule:
    r"""A rule that runs in another process, for `otlp.audit` and (with `batch`) `audit_rounds`.

    Parameters
    ----------
    command : str
        Command line with arguments, in shell syntax; no shell is started.
    uniforms : int
        Number of uniform random numbers passed with each case; the process must use no other
        randomness.  With 0, the process draws its own random numbers and is sampled.

    Raises
    ------
    InvalidInputError
        If the process cannot be started, or `uniforms` is not a non-negative integer.
    NotJudgedError
        When called, if the process exits, does not answer in time, or writes an invalid answer, too
        many answers or answers in the wrong order.

    Notes
    -----
    A case is ``{"id": 0, "vocab_size": 3, "shape": [1], "p": [...], "q": [...], "drafts": [...],
    "uniforms": [...]}``, with the keys in this order; the answer is ``{"id": 0, "token": 2}``, or
    ``"tokens": [2, 1]`` for paths, whose ``shape`` is [K, L].

    Examples
    --------
    A program that always returns the draft token:

    >>> import otlp
    >>> keep = r's/{"id": \([0-9]*\).*"drafts": \[\([0-9]*\).*/{"id": \1, "token": \2}/'
    >>> rule = otlp.auditing.CommandRule(f"sed -u '{keep}'", uniforms=1)
    >>> otlp.audit(rule, [0.5, 0.5], otlp.IID([0.9, 0.1], n=1)).verdict.name
    'NOT_LOSSLESS'
    """

    __slots__ = ("__name__", "at", "uniforms")
    method: ClassVar[str] = "search"

    def __init__(self, command: str, uniforms: int = 0) -> None:
        self.__name__ = command
        self.uniforms = whole_number(uniforms, "uniforms", 0)
        self.at = len(_RUNNING)
        _RUNNING.append(_Process(command))

    def __call__(self, draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
        """Return a token, or the tokens of several rounds."""
        process = _RUNNING[self.at]
        if draft_tokens.ndim == 3:
            rows = [_case(*row) for row in zip(draft_tokens, p, q, strict=True)]
        else:
            rows = [_case(draft_tokens, p, q)]
        if isinstance(rng, RandomSource):
            followed = [self._followed(process, row, rng) for row in rows]
        else:
            numbers = rng.random((len(rows), self.uniforms)).tolist()
            cases = [_with(row, given) for row, given in zip(rows, numbers, strict=True)]
            followed = process.ask(cases)
        if draft_tokens.ndim == 3:
            return followed
        answer = followed[0]
        return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer

    def _followed(self, process: _Process, row: str, rng: RandomSource) -> Any:
        if not 0 < self.uniforms <= MOST_NUMBERS:
            rng.give_up(f"it is another process that receives {self.uniforms} uniform numbers")
        numbers = rng.random(self.uniforms)

        def ask(points: Sequence[Sequence[float]]) -> list[Any]:
            cases = [_with(row, point) for point in points]
            new = [case for case in dict.fromkeys(cases) if case not in process.known]
            process.known.update(zip(new, process.ask(new), strict=True))
            return [process.known[case] for case in cases]

        if isinstance(numbers[0], LazyUniform):
            return _constant_answer(ask, numbers, rng)
        return process.ask([_with(row, numbers.tolist())])[0]


def _case(draft_tokens: Any, p: Any, q: Any) -> str:
    named = {
        "vocab_size": p.shape[-1],
        "shape": list(draft_tokens.shape),
        "p": p.tolist(),
        "q": q.tolist(),
        "drafts": draft_tokens.tolist(),
    }
    return json.dumps(named)[1:-1]


def _with(case: str, uniforms: Sequence[float]) -> str:
    return f'{case}, "uniforms": {json.dumps(list(uniforms))}'


Ask = Callable[[Sequence[Sequence[float]]], list[Any]]


def _constant_answer(ask: Ask, numbers: Any, rng: RandomSource) -> Any:
    """Narrow the intervals of the numbers until all probes agree; return their answer."""
    while True:
        points = _probes([number.interval for number in numbers])
        answers = ask(points)
        differs = next((at for at, answer in enumerate(answers) if answer != answers[0]), None)
        if differs is None:
            return answers[0]
        which, threshold = _threshold(ask, points[0], points[differs], answers[0])
        interval = numbers[which].interval
        if not interval.low < threshold < interval.high:
            rng.give_up("its answers change between adjacent floating-point numbers")
        bool(numbers[which] < threshold)  # The comparison narrows the interval.


def _probes(intervals: Sequence[Any]) -> list[list[float]]:
    """Return a grid in the box of up to 3 intervals; for more, the corners and 64 random points."""
    shares = PROBE_MARGIN, 0.5, 1.0 - PROBE_MARGIN
    places = [[one.low + share * (one.high - one.low) for share in shares] for one in intervals]
    if len(places) <= 3:
        return [list(point) for point in itertools.product(*places)]
    corners = [list(point) for point in itertools.product(*(place[::2] for place in places))]
    inside = np.random.default_rng(0).random((64, len(places)))
    low, high = np.array([[interval.low, interval.high] for interval in intervals]).T
    return [*corners, *(low + inside * (high - low)).tolist()]


def _threshold(ask: Ask, here: list[float], there: list[float], answer: Any) -> tuple[int, float]:
    """Return the coordinate, and its value, at which the answer changes between two points."""
    point = list(here)
    for which, value in enumerate(there):
        near, far = point[which], value
        point[which] = far
        if near == far or ask([point])[0] == answer:
            continue
        while True:
            middle = 0.5 * (near + far)
            if middle in (near, far):
                return which, max(near, far)
            point[which] = middle
            if ask([point])[0] == answer:
                near = middle
            else:
                far = middle
    raise AssertionError("the last point has another answer")
