"""otlp.batched.verify implements the plan of the CPU solver and is exactly lossless.

The G-tests of this file and of test_batched_rules.py together raise a false alarm with
probability at most 1e-6, for fixed seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.auditing.gtest import g_test
from tests.examples import examples
from tests.instances import brute_force_optimum, distributions, iid_problems, targets

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.certificate import FINE  # noqa: E402
from otlp.batched.coupling import scores, swap  # noqa: E402
from otlp.batched.martingale_rule import martingale_plan  # noqa: E402
from otlp.batched.numerics import before, mean_of_powers  # noqa: E402
from otlp.batched.ratio_bins import SIZE, layout_for  # noqa: E402
from otlp.batched.rows import prepare  # noqa: E402
from tests.otlp.batched.conditionals import (  # noqa: E402
    best_of,
    conditional,
    score_laws,
)
from tests.otlp.batched.rows import DTYPES, RULES, spread  # noqa: E402

G_TESTS = 80
"""Upper bound of the number of G-tests in both files."""

RATE = 1e-6 / G_TESTS


def random_instance(seed: int):
    """Two laws on at most five tokens, each of probability at least 1e-2."""
    rng = np.random.default_rng(seed)
    size, n = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    laws = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 4.0])), size=2)
    p, q = 0.95 * laws + 0.05 / size
    return p, q, n


def share_bins(p, q, n: int) -> bool:
    """Return whether two tokens share a bin; acceptance is then lost unless ratios exceed n.

    Also return true if a ratio rounds up to a bin, whose bound is then that of the larger ratio.
    """
    ratio = torch.tensor(p)[q > 0] / torch.tensor(q)[q > 0]  # without a warning
    bins = layout_for(n).bins(ratio, torch.ones_like(ratio))[ratio < n]
    fine = layout_for(n, FINE)
    rounded = fine.edges(ratio.device)[0][fine.bins(ratio, torch.ones_like(ratio))] > ratio
    return len(bins.unique()) < len(bins) or bool(rounded.any())


# --- the plan ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_conditionals_equal_the_cpu_solver(seed: int) -> None:
    """To 1e-12 in float64; given a draft of probability q, rounding costs about 1e-14 / q."""
    p, q, n = random_instance(seed)
    assert not share_bins(p, q, n)  # otherwise the plans differ
    tuples = torch.tensor(otlp.IID(q, n).enumerate_tuples().tokens)
    if len(tuples) > 40:
        tuples = tuples[np.random.default_rng(seed).choice(len(tuples), 40, replace=False)]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        target, draft = torch.tensor(p, dtype=dtype), torch.tensor(q, dtype=dtype)
        exact = [law.double().numpy() / law.double().numpy().sum() for law in (target, draft)]
        plan = otlp.solve(otlp.Problem(exact[0], otlp.IID(exact[1], n)), "martingale").plan
        wanted = np.array([plan.conditional(row) for row in tuples.tolist()])
        found = conditional(spread(target, len(tuples)), spread(draft, len(tuples)), tuples)
        assert np.abs(found.numpy() - wanted).max() < tolerance


@examples(40)
@given(iid_problems())
def test_conditionals_are_lossless_and_optimal(problem: otlp.Problem) -> None:
    check_enumerated(problem, 1e-11)


@pytest.mark.parametrize("seed", range(30, 50))
def test_conditionals_of_random_laws_are_lossless_and_optimal(seed: int) -> None:
    p, q, n = random_instance(seed)
    check_enumerated(otlp.Problem(p, otlp.IID(q, n)), 1e-13)


def check_enumerated(problem: otlp.Problem, tolerance: float) -> None:
    listed = problem.drafts.enumerate_tuples()
    tuples, mass = torch.tensor(listed.tokens), torch.tensor(listed.mass)
    laws = problem.target, problem.drafts.draft  # type: ignore[attr-defined]
    target, draft = (spread(torch.tensor(law), len(tuples)) for law in laws)
    found = conditional(target, draft, tuples)
    output = (mass[:, None] * found).sum(0)
    assert np.abs(output.numpy() - problem.target).sum() < tolerance
    certificate = batched.acceptance(target[:1], draft[:1], tuples[:1])
    acceptance, bound = (float(part) for part in certificate)
    drafted = torch.zeros_like(target).scatter_(1, tuples, 1.0)
    optimum = brute_force_optimum(problem)
    assert abs(float((mass[:, None] * found * drafted).sum()) - acceptance) < tolerance
    shared = share_bins(problem.target, problem.drafts.draft, problem.n)  # type: ignore[attr-defined]
    assert optimum - (2.0**-8 if shared else 1e-12) < acceptance < optimum + 1e-12
    assert optimum - 1e-12 < bound < optimum + (2.0**-10 if shared else 1e-12)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_acceptance_on_the_built_in_capture(temperature: float) -> None:
    """Within 1e-8 of the optimum on average, and within 1e-6 on every row."""
    capture = otlp.captures.builtin()
    laws = [capture.distributions(row=row, temperature=temperature) for row in range(len(capture))]
    target, draft = (torch.tensor(np.array(part)) for part in zip(*laws, strict=True))
    for n in (2, 8):
        tokens = torch.zeros(len(laws), n, dtype=torch.long)
        found = batched.acceptance(target, draft, tokens, validate=False).acceptance.numpy()
        best = [otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, n))) for p, q in laws]
        lost = np.array(best) - found
        assert lost.mean() < 1e-8 and -1e-12 < lost.min() and lost.max() < 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_certificate_at_size(dtype) -> None:
    """Acceptance within 1e-5 of its bound, for one to eight drafts; many tokens share bins."""
    target, draft, _ = synthetic_rows(12, 20_000, dtype, seed=3)
    tokens = torch.zeros(12, 8, dtype=torch.long)
    for row in range(12):
        tokens[row, 1 + row % 8 :] = batched.PADDING
    found = batched.acceptance(target, draft, tokens, validate=False)
    assert (found.acceptance <= found.upper_bound + 1e-12).all()
    assert (found.acceptance >= found.upper_bound - 1e-5).all()


def synthetic_rows(batch: int, vocab_size: int, dtype, seed: int):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.5, 6.0, batch)[:, None]
    base = scale * torch.randn(batch, vocab_size, generator=generator)
    other = base + torch.randn(batch, vocab_size, generator=generator)
    draft = batched.softmax(base).to(dtype)
    return batched.softmax(other).to(dtype), draft, generator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_realised_law_of_a_large_row(dtype, n: int) -> None:
    """The law of the selected token, computed from the swaps of the sampler, is y.

    Scores are not assumed to be uniform: the mass in each cell is summed over all swaps.
    """
    target, draft, _ = synthetic_rows(1, 20_000, dtype, seed=n)
    rows = prepare(target, draft, torch.zeros(1, n, dtype=torch.long), validate=False)
    c, _ = martingale_plan(rows)
    mass, up, down = (x.diff(dim=1, prepend=x.new_zeros(1, 1)) for x in (c.ends, c.up, c.down))
    cuts = torch.cat([c.up.new_zeros(1, 1), c.up, c.down], 1).sort(1).values
    cuts = torch.minimum(cuts, torch.minimum(c.up[:, -1:], c.down[:, -1:])).contiguous()
    overlap, begin = cuts.diff(dim=1).double(), cuts[:, :-1]
    some = overlap[0] > 0
    overlap, begin = overlap[:, some], begin[:, some].contiguous()
    low, high = (torch.searchsorted(x, begin, right=True) for x in (c.up, c.down))
    sent = (
        mass.gather(1, low)
        * swap(c, low, high, c.ratio.gather(1, low), n)
        * overlap
        / up.gather(1, low)
    )
    back = (
        mass.gather(1, high)
        * swap(c, high, low, c.ratio.gather(1, high), n)
        * overlap
        / down.gather(1, high)
    )
    held = mass.scatter_add(1, low, back - sent).scatter_add(1, high, sent - back)
    every = torch.arange(SIZE)[None]
    ends = held.cumsum(1)
    mean = mean_of_powers(before(ends, every), ends, n)
    rise = mean.gather(1, high) - mean.gather(1, low)
    law = (mass * mean).scatter_add(1, low, sent * rise).scatter_add(1, high, -back * rise)
    assert float((law - mass * c.ratio).abs().sum()) < 1e-11
    assert abs(float((mass * c.ratio).sum()) - 1.0) < 1e-12


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_sampled_scores_follow_their_laws(seed: int) -> None:
    p, q, n = random_instance(seed)
    generator = torch.Generator().manual_seed(seed)
    tokens = batched.sample(torch.tensor(q)[None], n, generator)
    rows = prepare(torch.tensor(p)[None], torch.tensor(q)[None], tokens, validate=True)
    coupling, bins = martingale_plan(rows)
    own = rows.at_drafts(bins)
    cell = coupling.cell(own)
    ratio = coupling.ratios(own, rows.at_drafts(rows.target), rows.at_drafts(rows.draft))
    count = 100_000
    whole = type(coupling)(*(spread(part, count) for part in coupling))
    numbers = torch.rand(count, 3 * n, dtype=torch.float64, generator=generator)
    chosen = scores(whole, spread(cell, count), spread(ratio, count), numbers).argmax(1)
    law = best_of(score_laws(coupling, cell, ratio), rows.drafted)[0]
    counts = torch.bincount(chosen, minlength=n).numpy()
    law = law.numpy() / law.numpy().sum()
    assert not g_test(counts, law, RATE).rejected


# --- the output, sampled -----------------------------------------------------------------------


def test_output_law_at_size() -> None:
    """Rare tokens are pooled by the test."""
    target, draft, generator = synthetic_rows(1, 20_000, torch.float32, seed=9)
    count, n = 1024, 4
    p, q = target[0].double() / target[0].double().sum(), draft[0].double()
    counts = torch.zeros(20_000, dtype=torch.long)
    for _ in range(4):
        drafts = batched.sample(q, count * n, generator)
        rows = spread(target, count), spread(draft, count), drafts.view(count, n)
        tokens, _ = batched.verify(*rows, generator, validate=False)  # type: ignore[misc]
        counts += torch.bincount(tokens, minlength=20_000)
    assert not g_test(counts.numpy(), p.numpy(), RATE).rejected


@examples(60)
@given(st.data())
def test_outputs_stay_in_the_support(data) -> None:
    size, n = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 5))
    q = data.draw(distributions(size))
    p = data.draw(targets(q))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    draft = spread(torch.tensor(q), 8)
    drafts = batched.sample(draft, n, generator)
    for verify in RULES.values():
        tokens, accepted = verify(spread(torch.tensor(p), 8), draft, drafts, generator)
        assert (torch.tensor(p)[tokens] > 0).all()
        assert ((drafts == tokens[:, None]).any(1) | ~accepted).all()


# --- compiled ---------------------------------------------------------------------------------


TRACED = [*((name, "aot_eager") for name in (*RULES, "recursive_rejection_without_replacement"))]
# With autograd in the graph, compiling the paths takes 15 s.
TRACED += [("verify_paths", "eager"), pytest.param("verify", "inductor", marks=pytest.mark.long)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), TRACED)
def test_compiled_without_graph_breaks(name: str, backend: str) -> None:
    target, draft, generator = synthetic_rows(5, 300, torch.float32, seed=8)
    drafts = batched.sample_without_replacement(draft, 3, generator)
    if name == "verify_paths":  # three paths of one token
        target, draft = target[:, None, None].repeat(1, 3, 2, 1), draft[:, None, None]
        draft, drafts = draft.repeat(1, 3, 1, 1), drafts[..., None]
    numbers = batched.uniforms(drafts, generator)
    verify = getattr(batched, name)
    try:
        compiled = torch.compile(verify, fullgraph=True, backend=backend)
        found = compiled(target, draft, drafts, numbers)
    except RuntimeError as error:  # PyTorch has no public name for a compiler that fails
        if type(error).__name__ != "BackendCompilerFailed":
            raise
        pytest.skip(f"torch.compile has no working compiler here: {error}")
    for one, other in zip(found, verify(target, draft, drafts, numbers), strict=True):
        assert torch.equal(one, other)
