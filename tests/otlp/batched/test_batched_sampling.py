"""Drafts, probabilities and random numbers: otlp.batched.sample, softmax and uniforms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.errors import InvalidDistributionError, InvalidInputError
from tests.instances import distributions

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402


def lattice(count: int):
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def test_all_tokens_of_a_large_vocabulary_can_be_drawn() -> None:
    """The midpoint of the interval of each token draws this token."""
    generator = torch.Generator().manual_seed(0)
    row = batched.softmax(2.0 * torch.randn(128_256, generator=generator))
    mass = row.double() / row.double().sum()
    middles = mass.cumsum(0) - 0.5 * mass
    drawn = batched.sample(row, 128_256, middles)
    # Tokens below the rounding error of the sums have almost no interval.
    seen = mass > 1e-15
    assert int(seen.sum()) > 128_000
    assert torch.equal(drawn[seen], torch.arange(128_256)[seen])


def test_what_multinomial_leaves_out() -> None:
    """Reason for the own sampler: float32 sums lose tokens after a likely token."""
    row = torch.full((1, 100_001), 2e-9)
    row[0, 0] = 1.0 - 2e-4
    count = 1_000_000
    drafts = batched.sample(row, count, lattice(count)[None])
    others = (drafts[0] > 0).double().mean()
    assert float(others) == pytest.approx(2e-4, abs=1e-6)
    assert drafts[0].unique().numel() == 201


@given(st.data())
def test_frequencies_are_the_probabilities(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    row = data.draw(distributions(size))
    drawn = batched.sample(torch.tensor(row), 10_000, lattice(10_000))
    found = torch.bincount(drawn, minlength=size).numpy() / 10_000
    assert np.abs(found - row / row.sum()).max() < 2e-4
    assert (row[drawn.numpy()] > 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tokens_of_probability_zero_are_never_drawn(dtype) -> None:
    row = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=dtype)
    ends = torch.tensor([0.0, 0.5 - 2**-53, 0.5, 1.0 - 2**-53], dtype=torch.float64)
    assert batched.sample(row, 4, ends).tolist() == [1, 1, 3, 3]


def test_shapes_and_seeds() -> None:
    rows = batched.softmax(torch.randn(2, 3, 4, 7, generator=torch.Generator().manual_seed(1)))
    one, other = (batched.sample(rows, 5, torch.Generator().manual_seed(2)) for _ in range(2))
    assert one.shape == (2, 3, 4, 5) and one.dtype == torch.int64
    assert torch.equal(one, other)
    flat = batched.sample(rows.view(-1, 7), 5, torch.Generator().manual_seed(2))
    assert torch.equal(flat.view(2, 3, 4, 5), one)


def test_bad_rows_are_named() -> None:
    rows = torch.full((2, 2, 4), 0.25)
    rows[1, 0, 0] = float("nan")
    with pytest.raises(InvalidDistributionError, match="probabilities row 1, 0 "):
        batched.sample(rows, 1)
    masked = batched.softmax(torch.full((1, 3), -math.inf))
    with pytest.raises(InvalidDistributionError, match="probabilities row 0 "):
        batched.sample(masked, 1)


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "2", None])
def test_bad_numbers_of_drafts(n: object) -> None:
    with pytest.raises(InvalidInputError, match="n must be"):
        batched.sample(torch.ones(1, 1), n)


# --- softmax ----------------------------------------------------------------------------------

LOGITS = [[0.0, 1.0, -math.inf, 0.5], [1.0, 1.0, 0.0, -1e4], [1e4, -math.inf, 9e3, 1e4]]


@pytest.mark.parametrize("temperature", [1e-320, 1e-40, 1e-3, 1, 0.7, 1e3, 1e40, 1e308])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_temperature(temperature: float, dtype) -> None:
    logits = torch.tensor(LOGITS).to(dtype)
    found = batched.softmax(logits, temperature)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    with np.errstate(over="ignore"):
        wanted = otlp.softmax(logits.double().numpy(), temperature)
    assert np.abs(found.double().numpy() - wanted).max() < (
        1e-15 if dtype == torch.float64 else 3e-7
    )
    assert (found[logits == -math.inf] == 0).all()


@pytest.mark.parametrize(
    "temperature",
    [0.0, -1.0, math.inf, math.nan, 10**400, "1", None, True, 1j, np.ones(1), torch.ones(1)],
)
def test_bad_temperatures_are_named(temperature: object) -> None:
    with pytest.raises(InvalidInputError, match="temperature must be"):
        batched.softmax(torch.zeros(2, 3), temperature)


def test_softmax_keeps_gradients() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    batched.softmax(logits)[0, 0].backward()
    assert logits.grad.tolist() == [[0.25, -0.25]]
