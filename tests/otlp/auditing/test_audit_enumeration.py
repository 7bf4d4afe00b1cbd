"""Exact laws of programs: supported idioms against their laws, and unsupported programs."""

from __future__ import annotations

import copy
from bisect import bisect
from collections.abc import Callable
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from otlp.auditing.enumeration import ExactDistribution, NotEnumerableError, enumerate_distribution

pytestmark = pytest.mark.usefixtures("few_repetitions")

LAW = np.array([0.1, 0.0, 0.6, 0.3])
CDF = np.cumsum(LAW)


def law_of(program: Callable[[Any], Any], max_paths: int = 10_000) -> ExactDistribution[Any]:
    return enumerate_distribution(program, max_paths, np.random.default_rng(0))


CATEGORICAL: dict[str, Callable[[Any], Any]] = {
    "choice": lambda rng: int(rng.choice(4, p=LAW)),
    "choice of an array": lambda rng: int(rng.choice(np.arange(4), p=LAW)),
    "multinomial": lambda rng: int(np.argmax(rng.multinomial(1, LAW))),
    "searchsorted": lambda rng: int(np.searchsorted(CDF, rng.random(), side="right")),
    "array searchsorted": lambda rng: int(CDF.searchsorted(rng.random(), side="right")),
    "digitize": lambda rng: int(np.digitize(rng.random(), CDF)),
    "bisect": lambda rng: bisect(CDF.tolist(), rng.random()),
    "argmax of a comparison": lambda rng: int((CDF > rng.random()).argmax()),
    "count": lambda rng: int(np.count_nonzero(rng.random() >= CDF)),
    "default_rng": lambda rng: int(np.random.default_rng(rng).choice(4, p=LAW)),
    "loop": lambda rng: walk(rng.random()),
    "one of a vector": lambda rng: walk(rng.random(3)[1]),
    "logarithm": lambda rng: int(np.searchsorted(np.log(CDF), np.log(rng.random()))),
    "minus": lambda rng: 3 - int(np.searchsorted(np.cumsum(LAW[::-1]), 1.0 - rng.random())),
    "scaled": lambda rng: int(np.searchsorted(CDF * 7.0 - 2.0, rng.random() * 7.0 - 2.0)),
    "uniform": lambda rng: int(np.searchsorted(CDF * 3.0 + 1.0, rng.uniform(1.0, 4.0))),
    "reversed": lambda rng: int((CDF.max() / 2.0 >= rng.random() / 2.0) * walk(rng.random())),
}


def walk(number: Any) -> int:
    for token, mass in enumerate(LAW):
        number = number - mass
        if number < 0.0:
            return token
    raise AssertionError("the law sums to one")


@pytest.mark.parametrize("name", CATEGORICAL)
def test_categorical_idioms(name: str) -> None:
    law = law_of(CATEGORICAL[name])
    assert law.weights == pytest.approx({0: 0.1, 2: 0.6, 3: 0.3}, abs=1e-15)
    assert law.unexplored < 1e-12


def test_other_draws() -> None:
    assert law_of(lambda rng: int(rng.integers(2, 5))).weights == pytest.approx(
        {2: 1 / 3, 3: 1 / 3, 4: 1 / 3}
    )
    assert law_of(lambda rng: int(rng.random() * 4)).weights == pytest.approx(
        dict.fromkeys(range(4), 0.25)
    )
    assert law_of(lambda rng: rng.binomial(2, 0.3)).weights == pytest.approx(
        {0: 0.49, 1: 0.42, 2: 0.09}
    )
    orders = law_of(lambda rng: tuple(rng.permutation(3).tolist())).weights
    assert orders == pytest.approx(dict.fromkeys(permutations(range(3)), 1 / 6))

    def shuffled(rng: Any) -> tuple[int, ...]:
        items = [0, 1, 2]
        rng.shuffle(items)
        return tuple(int(item) for item in items)

    assert law_of(shuffled).weights == pytest.approx(orders)
    q = [0.5, 0.3, 0.2]
    pairs = law_of(lambda rng: tuple(rng.choice(3, 2, replace=False, p=q).tolist())).weights
    assert pairs == pytest.approx(
        {(i, j): q[i] * q[j] / (1.0 - q[i]) for i, j in permutations(range(3), 2)}
    )


ARRAYS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "uniform": (lambda rng: rng.uniform(np.zeros(2), 1.0), 0.5),
    "uniform of lists": (lambda rng: rng.uniform([0.0, 0.0], [1.0, 1.0]), 0.5),
    "exponential": (lambda rng: rng.exponential([1.0, 1.0]), np.log(2.0)),
    "gumbel": (lambda rng: rng.gumbel(np.zeros(2)), -np.log(np.log(2.0))),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_each_number_of_an_array_is_drawn_by_itself(name: str) -> None:
    draw, median = ARRAYS[name]
    law = law_of(lambda rng: tuple(bool(number < median) for number in draw(rng)))
    assert law.weights == pytest.approx(dict.fromkeys(product((False, True), repeat=2), 0.25))


def test_a_number_keeps_its_interval() -> None:
    """Two comparisons of one number are not independent."""

    def program(rng: Any) -> tuple[bool, bool]:
        number = rng.random()
        return bool(number < 0.5), bool(number < 0.2)

    assert law_of(program).weights == pytest.approx(
        {(True, True): 0.2, (True, False): 0.3, (False, False): 0.5}
    )


def test_thresholds_in_arrays_and_tensors_without_axes() -> None:
    assert law_of(lambda rng: bool(rng.random() < np.array(0.3))).weights[True] == 0.3
    assert law_of(lambda rng: bool(np.array(0.3) >= rng.random())).weights[True] == 0.3
    torch = pytest.importorskip("torch")
    threshold = torch.tensor(0.25)
    assert law_of(lambda rng: bool(rng.random() < threshold)).weights[True] == 0.25
    assert law_of(lambda rng: bool(threshold >= rng.random())).weights[True] == 0.25


def test_thresholds_off_the_interval_do_not_branch() -> None:
    def program(rng: Any) -> tuple[bool, ...]:
        number = rng.random()
        return (
            bool(number < 1.0),
            bool(number <= 7.0),
            bool(number < 0.0),
            bool(number > -1.0),
            bool(number < np.nan),
            bool(number >= np.nan),
            bool(number < np.inf),
        )

    assert law_of(program).weights == {(True, True, False, True, False, False, True): 1.0}


def test_unlikely_paths_are_accounted_for() -> None:
    law = law_of(lambda rng: bool(rng.random() < 1e-13))
    assert law.weights == {False: pytest.approx(1.0)}
    assert law.unexplored == pytest.approx(1e-13)


def test_a_loop_without_end_is_cut_where_it_is_negligible() -> None:
    def geometric(rng: Any) -> int:
        count = 0
        while rng.random() < 0.75:
            count += 1
        return count

    law = law_of(geometric)
    assert law.weights[3] == pytest.approx(0.25 * 0.75**3)
    assert sum(law.weights.values()) + law.unexplored == pytest.approx(1.0, abs=1e-15)
    assert law.unexplored < 1e-10


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda rng: rng.normal() < 0.0, "rng.normal"),
        (lambda rng: copy.deepcopy(rng).random() < 0.5, "copy"),
        (lambda rng: np.random.Generator(rng.bit_generator).random() < 0.5, "bit_generator"),
        (lambda rng: float(rng.random()), "float"),
        (lambda rng: np.asarray(rng.random(), dtype=np.float64) < 0.5, "float"),
        (lambda rng: bool(rng.random() < rng.random()), "two random numbers"),
        (lambda rng: bool(rng.random() * rng.random() < 0.5), "multiplies two random numbers"),
        (lambda rng: int(rng.integers(2**62)), "range"),
        (lambda rng: int(rng.integers(0, [2, 3])[0]), "an array of ranges"),
        (lambda rng: int(rng.choice(100_000)), "more than"),
        (lambda rng: swallowing(rng), "float"),
        (lambda rng: int(np.random.default_rng().integers(1 << 60)), "os.urandom"),
        (lambda rng: int(np.random.randint(1 << 30)), "global"),
        (lambda rng: np.random.Generator.random(rng) < -1.0, "np.random.Generator's own methods"),
        (lambda rng: bool(rng.random() * np.float16(0.3) < 0.1), "in float16, whose"),
        (lambda rng: bool(np.float16(0.3) > rng.random()), "in float16, whose"),
        (lambda rng: bool((CDF.astype(np.float16) > rng.random()).all()), "in float16, whose"),
    ],
)
def test_what_cannot_be_followed_is_said(program: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(NotEnumerableError, match=words):
        law_of(program)


def swallowing(rng: Any) -> int:
    try:
        return int(float(rng.random()) < 0.5)
    except Exception:
        return 2


def test_errors_of_numpy_are_kept() -> None:
    """A law that does not sum to 1 raises as in NumPy; multinomial extends the last token."""
    half = LAW / 2.0
    with pytest.raises(ValueError, match="do not sum to 1"):
        law_of(lambda rng: rng.choice(4, p=half))
    for refused in (
        lambda rng: rng.random(dtype=np.float16),
        lambda rng: rng.standard_exponential(dtype=np.float16),
        lambda rng: rng.integers(3, dtype=float),
        lambda rng: rng.integers(300, dtype=np.uint8),
    ):
        with pytest.raises((TypeError, ValueError)):
            law_of(refused)
    weights = law_of(lambda rng: int(np.argmax(rng.multinomial(1, half)))).weights
    assert weights == pytest.approx({0: 0.05, 2: 0.3, 3: 0.65})


RACES: dict[str, Callable[[Any], Any]] = {
    "p / exponential": lambda rng: int(np.argmax(LAW / rng.exponential(size=4))),
    "exponential / p": lambda rng: int(np.argmin(rng.standard_exponential(4) / LAW)),
    "other means": lambda rng: int(np.argmin(rng.exponential(1.0 / (LAW + 1e-300)))),
    "gumbel": lambda rng: int(np.argmax(np.log(LAW) + rng.gumbel(size=4))),
    "two logarithms": lambda rng: int(np.argmax(np.log(LAW) - np.log(-np.log(rng.random(4))))),
    "power": lambda rng: int(np.argmax(np.log(rng.random(4)) / LAW)),
}


@pytest.mark.parametrize("name", RACES)
def test_races(name: str) -> None:
    with np.errstate(divide="ignore"):
        law = law_of(RACES[name])
    assert law.weights == pytest.approx({0: 0.1, 2: 0.6, 3: 0.3}, abs=1e-12)


def test_a_number_of_a_race_is_not_used_again() -> None:
    def program(rng: Any) -> Any:
        times = rng.exponential(size=2)
        return bool(times[0] < times[1]), bool(times[0] < 1.0)

    with pytest.raises(NotEnumerableError, match="with others and with a threshold"):
        law_of(program)


@cache
def own(torch: Any) -> Any:
    return torch.Generator()


def in_place(torch: Any, p: Any, rng: Any) -> Any:
    race = torch.empty(1, 4, dtype=p.dtype)
    race.exponential_(generator=own(torch))
    return p.clone()[None].div_(race).argmax(dim=-1).item()


TENTHS = [0, 2, 2, 2, 2, 2, 2, 3, 3, 3]

TENSORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "multinomial": lambda torch, p, rng: torch.multinomial(p, 1),
    "race": in_place,
    "searchsorted": lambda torch, p, rng: torch.searchsorted(
        p.cumsum(0), torch.rand(1, dtype=p.dtype), right=True
    ),
    "comparison": lambda torch, p, rng: (p.cumsum(0) <= torch.rand((), dtype=p.dtype)).sum(),
    "item": lambda torch, p, rng: np.searchsorted(CDF, torch.rand(2, dtype=p.dtype)[1].item()),
    "product with a tensor": lambda torch, p, rng: (
        p.cumsum(0) * 3.0 <= torch.rand_like(p)[:1] * torch.tensor(3.0)
    ).sum(),
    "NumPy times a tensor": lambda torch, p, rng: (p.cumsum(0) <= rng.random() * p.sum()).sum(),
    "searchsorted in rows": lambda torch, p, rng: torch.searchsorted(
        torch.stack([p.cumsum(0)] * 2), torch.rand(2, 1, dtype=p.dtype), right=True
    )[1],
    "uniform_": lambda torch, p, rng: (p.cumsum(0) <= torch.empty_like(p).uniform_()[0]).sum(),
    "uniform_ without axes": lambda torch, p, rng: (
        p.cumsum(0) <= torch.empty((), dtype=p.dtype).uniform_()
    ).sum(),
    "exponential_ without axes": lambda torch, p, rng: (
        p.cumsum(0) <= 1.0 - (-torch.empty((), dtype=p.dtype).exponential_()).exp()
    ).sum(),
    "randint": lambda torch, p, rng: TENTHS[torch.randint(10, (1,))],
    "randint, its size by name": lambda torch, p, rng: TENTHS[torch.randint(10, size=(1,))],
    "randint by names": lambda torch, p, rng: TENTHS[torch.randint(low=0, high=10, size=(1,))],
    "view": lambda torch, p, rng: (
        p.cumsum(0) <= torch.rand(2, 2, dtype=p.dtype).view(-1).unsqueeze(0)[0, 3].expand(4)
    ).sum(),
}


@pytest.mark.parametrize("name", TENSORS)
def test_idioms_of_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    law = law_of(lambda rng: int(TENSORS[name](torch, torch.tensor(LAW), rng)))
    assert law.weights == pytest.approx({0: 0.1, 2: 0.6, 3: 0.3}, abs=1e-7)


def seeded_draw(torch: Any) -> bool:
    torch.manual_seed(5)
    return bool(torch.rand(()) < 0.5)


def restored_draw(torch: Any) -> bool:
    with torch.random.fork_rng(devices=[]):
        return bool(torch.rand(()) < 0.5)


def test_tensors_that_cannot_be_followed() -> None:
    torch = pytest.importorskip("torch")
    for program, words in [
        (lambda rng: bool(torch.randn(1) > 0), "torch.randn"),
        (lambda rng: float(torch.rand(3).sort().values[0]) > 0.5, "torch.sort"),
        (
            lambda rng: int(torch.bernoulli(input=torch.tensor(0.5))),
            "torch.bernoulli with unsupported",
        ),
        (
            lambda rng: bool(torch.rand((), generator=torch.Generator()) < 0.5),
            "new PyTorch generators",
        ),
        (lambda rng: seeded_draw(torch), "Generator.manual_seed"),
        (lambda rng: restored_draw(torch), "Generator.set_state"),
        (lambda rng: bool(torch.rand((), dtype=torch.bfloat16) < 0.5), "in bfloat16, whose"),
        (lambda rng: bool(torch.empty(1, dtype=torch.float16).exponential_() < 1), "in float16"),
        (lambda rng: bool(torch.rand(()).half() < 0.5), "torch.half on random numbers"),
        (lambda rng: bool(torch.rand(()) < torch.ones(1).bfloat16()), "in bfloat16, whose"),
        (lambda rng: int(torch.multinomial(torch.ones(2).bfloat16(), 1)), "in bfloat16, whose"),
        (lambda rng: bool(rng.random() < torch.tensor(0.5).half()), "in torch.float16, whose"),
    ]:
        with pytest.raises(NotEnumerableError, match=words):
            law_of(program)
