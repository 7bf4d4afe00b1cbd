"""Every row follows its target exactly: no drafts, padding, degenerate rows, any layout.

By enumeration over all drafts with `conditional`, and over a grid of the random numbers of a
sampler.  The tests have no false alarms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.martingale_rule import martingale_plan  # noqa: E402
from otlp.batched.ratio_bins import SIZE  # noqa: E402
from otlp.batched.rows import CHUNK, prepare  # noqa: E402
from tests.otlp.batched.conditionals import conditional  # noqa: E402
from tests.otlp.batched.rows import (  # noqa: E402
    DEGENERATE,
    RULES,
    degenerate_rows,
    spread,
)

pytestmark = pytest.mark.filterwarnings("error", "ignore::ResourceWarning")

P, Q = [0.6, 0.4], [0.4, 0.6]


@pytest.fixture(params=RULES.values(), ids=RULES)
def rule(request: pytest.FixtureRequest) -> Callable:
    return request.param


def grid(count: int, width: int, axes: tuple[int, ...]):
    """Return random numbers 1/2, except along `axes`, which use a grid of `count` midpoints."""
    points = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    numbers = torch.full((count ** len(axes), width), 0.5, dtype=torch.float64)
    numbers[:, list(axes)] = torch.cartesian_prod(*[points] * len(axes)).view(-1, len(axes))
    return numbers


def shares(tokens, size: int) -> np.ndarray:
    return torch.bincount(tokens, minlength=size).double().numpy() / len(tokens)


# --- rows without drafts ----------------------------------------------------------------------


def test_rows_without_drafts_follow_the_target(rule) -> None:
    """As single rows, and as every third row of a batch."""
    none = [batched.PADDING] * 2
    for pattern in ([none], [[0, 1], none, [batched.PADDING, 1]]):
        drafts = torch.tensor(pattern).repeat(1000, 1)
        numbers = grid(1000, 8, (7,)).repeat_interleave(len(pattern), 0)
        tokens, accepted = rule(spread(P, len(drafts)), spread(Q, len(drafts)), drafts, numbers)
        some = slice(pattern.index(none), None, len(pattern))
        assert shares(tokens[some], 2).tolist() == P
        assert not accepted[some].any()


@pytest.mark.parametrize("place", [0, 1])
def test_padded_rows_follow_the_target(rule, place: int) -> None:
    """One draft with padding: over the draft and a grid of the relevant numbers."""
    count, output = 100, np.zeros(2)
    # the number that accepts the one draft: for sequential baselines, the number of its position
    accept = {"recursive_rejection": place, "k_seq": place}.get(rule.__name__, 6)
    for token in (0, 1):
        drafts = torch.full((count**2, 2), batched.PADDING)
        drafts[:, place] = token
        numbers = grid(count, 8, (accept, 7))
        tokens, _ = rule(spread(P, count**2), spread(Q, count**2), drafts, numbers)
        output += Q[token] * shares(tokens, 2)
    assert np.abs(output - P).max() < 0.01


# --- all drafts, all patterns of padding, degenerate rows --------------------------------------


@pytest.mark.parametrize(("p", "q"), DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("n", [1, 3])
def test_every_pattern_of_padding_is_lossless(p: list[float], q: list[float], n: int) -> None:
    """For each pattern of padding, the output follows p over all other drafts."""
    support = [token for token, mass in enumerate(q) if mass > 0]
    rows = torch.tensor(list(product([*support, batched.PADDING], repeat=n)))
    padded = rows == batched.PADDING
    found = conditional(spread(p, len(rows)), spread(q, len(rows)), rows)
    assert (found >= 0).all()
    mass = torch.where(padded, 1.0, spread(q, 1)[0, rows.clamp(min=0)]).prod(1)
    for pattern in product([False, True], repeat=n):
        some = (padded == torch.tensor(pattern)).all(1)
        output = (mass[some, None] * found[some]).sum(0).numpy() / sum(q) ** (n - sum(pattern))
        assert np.abs(output - np.array(p) / sum(p)).sum() < 1e-14


@pytest.mark.parametrize("size", [16, 64, 256, SIZE])
def test_tokens_that_share_bins_are_lossless(size: int) -> None:
    """Bins from an octave wide to the narrowest; each token is moved by its own ratio.

    Three groups of two tokens, with similar ratios in each group.
    """
    rng, mixed, own = np.random.default_rng(size), 0, 0
    for _ in range(60):
        q = rng.dirichlet(np.full(6, rng.choice([0.5, 3.0])))
        ratio = np.repeat(np.exp(rng.uniform(-2.0, 1.5, 3)), 2) * rng.uniform(
            1.0, 1.0 + 8 / size, 6
        )
        p, n = q * ratio / (q @ ratio), int(rng.integers(1, 4))
        rows = torch.tensor(list(product(range(6), repeat=n)))
        target, draft = spread(p, len(rows)), spread(q, len(rows))
        found = conditional(target, draft, rows, size)
        assert (found >= 0).all()
        output = (draft[0, rows].prod(1)[:, None] * found).sum(0).numpy()
        assert np.abs(output - p).sum() < 1e-13
        coupling, bins = martingale_plan(prepare(target[:1], draft[:1], rows[:1], True), size)
        shared = (bins[0, :, None] == bins[0]).sum(1) > 1
        pure = coupling.level.gather(1, bins)[0].isinf()
        mixed += int((shared & ~pure).sum())
        own += int((shared & pure).sum())
    assert mixed + own > 40 and (own > 10 or size == 16)


@pytest.mark.parametrize(("p", "q"), DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_degenerate_rows_stay_in_the_support(rule, p: list[float], q: list[float], dtype) -> None:
    target, draft = torch.tensor(p, dtype=dtype), torch.tensor(q, dtype=dtype)
    support = draft.nonzero()[:, 0].tolist()
    drafts = torch.tensor(list(product([*support, batched.PADDING], repeat=2)))
    corners = torch.tensor([0.0, 0.5, 1.0 - 2**-53], dtype=torch.float64)
    for corner in corners:
        numbers = corner.expand(len(drafts), 8)
        tokens, _ = rule(
            target.expand(len(drafts), -1), draft.expand(len(drafts), -1), drafts, numbers
        )
        assert (target[tokens] > 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_degenerate_conditionals_are_those_of_each_row_alone(dtype) -> None:
    target, draft, tokens, names = degenerate_rows(dtype)
    together = conditional(target, draft, tokens)
    assert (together >= 0).all()
    assert ((together.sum(1) - 1.0).abs() < 1e-12).all()
    for row, name in enumerate(names):
        real = tokens[row][tokens[row] >= 0]
        kept = real if len(real) else torch.tensor([batched.PADDING])
        alone = conditional(target[row : row + 1], draft[row : row + 1], kept[None])
        assert (together[row] - alone[0]).abs().max() < 1e-12
        if not len(real):
            law = target[row].double()
            assert (together[row] - law / law.sum()).abs().max() < 1e-12
        elif name in ("equal", "disjoint"):
            hit = float(together[row, kept.unique()].sum())
            assert hit == pytest.approx(float(name == "equal"), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_degenerate_rows_are_verified_as_alone(rule, dtype) -> None:
    target, draft, tokens, names = degenerate_rows(dtype)
    numbers = batched.uniforms(tokens, torch.Generator().manual_seed(4))
    found, accepted = rule(target, draft, tokens, numbers)
    for row, name in enumerate(names):
        part = slice(row, row + 1)
        alone, hit = rule(target[part], draft[part], tokens[part], numbers[part])
        assert int(alone) == int(found[row]) and bool(hit) == bool(accepted[row])
        if name in ("equal", "disjoint") and rule is not batched.speculative_sampling:
            assert bool(hit) == (name == "equal" and bool((tokens[row] >= 0).any()))


def test_the_first_bin_is_never_pure() -> None:
    """It has almost no mass of q: n u^(n-1) is 0 in float64, and no token has q = 0."""
    q = torch.tensor([[1e-17, 0.0, 0.5, 0.3, 0.2]], dtype=torch.float64)
    p = torch.tensor([[0.0, 0.0, 0.501, 0.2995, 0.1995]], dtype=torch.float64)
    rows = prepare(p, q, torch.zeros(1, 40, dtype=torch.long), validate=True)
    coupling, bins = martingale_plan(rows)
    level = coupling.level.gather(1, bins)
    assert (q[level.isinf()] > 0).all() and not coupling.level[0, 0].isinf()
    drafts = batched.sample(q.expand(500, -1), 40, torch.Generator().manual_seed(1))
    numbers = batched.uniforms(drafts, torch.Generator().manual_seed(2))
    numbers[:, -2] = 1.0 - 2**-53
    tokens, _ = batched.martingale(p.expand(500, -1), q.expand(500, -1), drafts, numbers)
    assert (p[0, tokens] > 0).all()


# --- memory layout of the rows -----------------------------------------------------------------


def test_layouts_make_no_difference(rule) -> None:
    """Transposed, expanded and sliced tensors, tensors that require grad, small token types."""
    generator = torch.Generator().manual_seed(1)
    target = batched.softmax(torch.randn(6, 50, generator=generator))
    draft = batched.softmax(torch.randn(6, 50, generator=generator))
    drafts = batched.sample(draft, 3, generator)
    numbers = batched.uniforms(drafts, generator)
    wanted = rule(target, draft, drafts, numbers)
    transposed = target.t().contiguous().t()
    sliced = torch.stack([draft, draft], 2)[..., 0]
    strided = numbers.t().contiguous().t()
    for inputs in (
        (transposed, sliced, drafts.t().contiguous().t(), strided),
        (target.requires_grad_(), draft.requires_grad_(), drafts.to(torch.int8), numbers),
        (target.double(), draft, drafts.to(torch.uint8), numbers.requires_grad_()),
    ):
        found = rule(*inputs)
        assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1])
        assert not found[0].requires_grad


def test_no_rows(rule) -> None:
    empty = torch.empty(0, 5)
    tokens, accepted = rule(empty, empty, torch.empty(0, 2, dtype=torch.long))
    assert tokens.shape == accepted.shape == (0,)
    assert batched.sample(empty, 3).shape == (0, 3)


def test_chunks_make_no_difference(rule) -> None:
    """Batches larger than one chunk, against each row by itself."""
    width = 2**20 + 1
    assert 5 * width > CHUNK
    target, draft = torch.zeros(5, width), torch.zeros(5, width)
    target[:, :2], draft[:, -2:] = torch.tensor(P), torch.tensor(P)
    target[3, 0], target[3, -1] = 0.0, 0.6
    drafts = torch.tensor([[width - 1, width - 2]] * 4 + [[-1, -1]])
    numbers = batched.uniforms(drafts, torch.Generator().manual_seed(2))
    found = rule(target, draft, drafts, numbers)
    for row in (3, 4):
        some = slice(row, row + 1)
        alone = rule(target[some], draft[some], drafts[some], numbers[some])
        assert torch.equal(found[0][some], alone[0]) and torch.equal(found[1][some], alone[1])


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("tiny", [5e-324, 1e-322, 1e-310, 1e-300])
def test_subnormal_masses(tiny: float, position: int) -> None:
    """Two drafts of three tokens, one of subnormal mass: the plan is finite and sums to p."""
    drafts = torch.tensor([*product(range(3), repeat=2)])
    one, other = (np.insert(law, position, tiny) for law in ([0.0041, 0.9959], [0.3, 0.7]))
    for p, q in ((one, one), (one, other), (other, one)):
        target, draft = (torch.tensor(law).expand(9, -1) for law in (p, q))
        chances = draft[0][drafts].prod(1)
        law = chances @ conditional(target, draft, drafts)
        assert float((law - target[0]).abs().sum()) < 1e-12
        found = batched.acceptance(target, draft, drafts)
        assert bool((found.upper_bound - found.acceptance).abs().max() < 1e-3)
