"""Noise from seed and position, drafts that use it, and texts equal to plain decoding."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from otlp.auditing.gtest import g_test
from otlp.decode import (
    Autoregressive,
    Calibration,
    Drafting,
    Equality,
    GumbelMax,
    Mixture,
    Model,
    NGram,
    Perturbed,
    RandomChooser,
    Sampling,
    TextModel,
    Traversal,
    certain_tree,
    decode,
    iid_paths,
    mixed_tree,
    no_draft,
    play_round,
    random_pair,
    top_tree,
    with_shared_noise,
    without_replacement,
)
from otlp.decode.models.copying import Copying
from otlp.decode.tree import ROOT
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.numerics.exponentials import exponentials, noise_row, row_key
from otlp.studies.decoding import Setting, measure
from otlp.testing.plain_equality import candidates, exponential, verify_equality
from otlp_lab.calibrating import Races, concatenate, race
from otlp_lab.design.adaptive import adaptive_branching
from tests.otlp.decode.markov_chains import Markov, chains

ALARM = 1e-6
OTHERS = Calibration(1.0, 0.1, "t", "d")
EMPTY = np.empty(0, dtype=np.int64)


def text(draft: Model, target: Model, drafting: Drafting, tokens: int) -> list[int]:
    """Generate a number of tokens after token 0, or up to an end token."""
    how: dict[str, Any] = {"draft": draft, "drafting": drafting, "verification": Equality()}
    return write(target, tokens, [0], **how)


def write(target: Model, tokens: int, prompt: list[int], **how: Any) -> list[int]:
    (found,) = decode(target, [np.array(prompt)], tokens, np.random.default_rng(), **how)
    return found.tokens.tolist()


def test_noise_is_equal_on_arrays_and_tensors_and_made_again_anywhere() -> None:
    for seed, place in (((0,), 0), ((3, 2**62), 10**12)):
        row = noise_row(seed, place, 3000)
        asked = np.array([2999, 0, 17])
        key = row_key(seed, place)
        assert exponentials(key, asked).tolist() == row[asked].tolist()
        torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[torch]")
        assert exponentials(key, torch.arange(3000)).numpy().tobytes() == row.tobytes()
    assert row_key((1, 2), 3) != row_key(1, 2) != row_key(2, 1)
    plain = [exponential(5, 9, token) for token in range(50)]
    np.testing.assert_allclose(noise_row((5,), 9, 50), plain, rtol=1e-14)


def test_noise_is_exponential_and_independent() -> None:
    rows = np.array([noise_row((7,), place, 500) for place in range(1000)])
    counts = np.bincount((np.exp(-rows) * 64).astype(int).ravel(), minlength=64)
    assert not g_test(counts, np.full(64, 1 / 64), ALARM).rejected
    moments = [(rows**k).mean() for k in (1, 2, 3)]
    np.testing.assert_allclose(moments, [1.0, 2.0, 6.0], rtol=0.03)
    signs = rows > np.log(2)
    for other in (signs[:, 1:] ^ signs[:, :-1], signs[1:] ^ signs[:-1]):
        assert not g_test(np.bincount(other.ravel()), np.full(2, 0.5), ALARM).rejected


@pytest.mark.parametrize("seeded", ["seeds", "places"])
def test_draws_follow_the_law(seeded: str) -> None:
    law = np.array([0.4, 0.0, 0.3, 0.15, 0.1, 0.05])
    key = {"seeds": lambda n: ((n,), 4), "places": lambda n: ((4,), n)}[seeded]
    drawn = [int(np.argmax(law / noise_row(*key(n), law.size))) for n in range(2_000)]
    assert not g_test(np.bincount(drawn, minlength=6), law, ALARM).rejected


def test_texts_follow_the_target_over_seeds() -> None:
    draft, target = random_pair(3, 3, np.random.default_rng(0))
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(500):
        pair = with_shared_noise(draft, target, seed)
        for model in pair:
            model.start(EMPTY)
        tokens: list[int] = []
        while len(tokens) < 2:
            rng = np.random.default_rng()
            tokens += play_round(*pair, top_tree(2, 1), Equality(), rng).tokens.tolist()
        counts[tokens[0], tokens[1]] += 1
    law = target.joint(2)
    found = np.array([counts[pair] for pair in np.ndindex(3, 3)])
    assert not g_test(found, law.ravel(), ALARM).rejected


DRAFTINGS = {
    "tree": top_tree(5, 3),
    "chain": top_tree(3, 3, 1),
    "threshold": top_tree(9, 4, least=0.15),
    "by rank": certain_tree([-1, 0, 0, 1, 1]),
    "whole tree": top_tree(12, 2),
    "mixed": mixed_tree([(1, 1), (0, 1)]),
    "i.i.d.": iid_paths(2, 2),
    "without replacement": without_replacement([2, 1]),
    "adaptive": adaptive_branching(5, 3, 0.6),
}
SAMPLINGS = (
    Sampling(), Sampling(0.4), Sampling(2.0, top_k=2), Sampling(top_p=0.7), Sampling(0.0),
)  # fmt: skip


@pytest.mark.parametrize(
    "size",
    [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 4, 5, 6))],
)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_texts_are_those_of_plain_decoding(size: int, sampling: Sampling) -> None:
    """Forty-five texts per case; 1,125 in total with the slow cases."""
    for seed in range(5):
        draft, target = chains(size, seed, (size - 1,) if seed % 2 else ())
        target.sampling = sampling
        draft.sampling = sampling.at(0.7) if seed == 2 else sampling
        drafts = [draft, Copying(draft), Mixture([draft, NGram(size)])]
        for number, drafting in enumerate(DRAFTINGS.values()):
            pair = with_shared_noise(drafts[number % 3], target, (seed, number))
            plain = write(pair[1], 7, [0])
            assert text(*pair, drafting, 7) == plain
            # Another draft seed changes the number of calls, not the text.
            stranger = Perturbed(draft, seed + 100, Calibration(0.3, 0.0))
            assert number or text(stranger, pair[1], drafting, 7) == plain


class Penalised(TextModel):
    """A target whose next-token distribution depends on the whole text."""

    def __init__(self, model: Markov, penalty: float, longest: int) -> None:
        super().__init__(model.vocab_size, "penalised")
        self.model, self.penalty, self.longest = model, penalty, longest

    def distribution(self, text: IntArray) -> FloatArray:
        seen = np.bincount(text, minlength=self.vocab_size)
        row = self.model.distribution(text) / self.penalty**seen
        # No token occurs three times in a row.
        row[text[-1]] *= np.unique(text[-self.longest :]).size > 1
        found: FloatArray = row / row.sum()
        return found


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_penalties_on_the_target_alone_and_batches(size: int) -> None:
    """Eight texts per case; batched prompts of different lengths give the same texts."""
    draft, markov = chains(size, 20 + size)
    target = Penalised(markov, 1.7, 2)
    prompts = [np.arange(n) % size for n in (2, 3, 5, 4)]
    for seed in range(2):
        pair = with_shared_noise(draft, target, seed)
        drafting = list(DRAFTINGS.values())[(size + seed) % len(DRAFTINGS)]
        how: dict[str, Any] = {"drafting": drafting, "verification": Equality(), "ends": [0]}
        texts = decode(pair[1], prompts, 9, np.random.default_rng(), draft=pair[0], **how)
        for prompt, found in zip(prompts, texts, strict=True):
            assert found.tokens.tolist() == write(pair[1], 9, prompt.tolist(), ends=[0])


def test_a_text_goes_on_from_anywhere_and_depends_on_the_seed() -> None:
    draft, target = chains(5, 3)
    pair = with_shared_noise(draft, target, 8)
    whole = text(*pair, top_tree(4, 2), 12)
    how: dict[str, Any] = {"drafting": top_tree(3, 3), "verification": Equality()}
    assert write(pair[1], 7, [0, *whole[:5]], draft=pair[0], **how) == whole[5:]
    assert text(*with_shared_noise(draft, target, 9), no_draft(), 12) != whole


def test_other_lossless_rules_write_the_same_text() -> None:
    draft, target = chains(4, 1)
    pair = with_shared_noise(draft, target, 2)
    plain = text(*pair, no_draft(), 10)
    for rule in (Traversal(), Autoregressive()):
        how: dict[str, Any] = {"drafting": without_replacement([2, 2]), "verification": rule}
        assert write(pair[1], 10, [0], draft=pair[0], **how) == plain


def test_greedy_decoding_needs_no_noise() -> None:
    draft, target = chains(6, 4)
    for model in (draft, target):
        model.sampling = Sampling(0.0)
    found = text(*with_shared_noise(draft, target, 5), top_tree(4, 4), 9)
    for last, token in zip([0, *found], found, strict=False):
        assert token == int(np.argmax(target.rows[last]))


def test_a_draft_that_is_the_target_is_always_right() -> None:
    _, target = chains(5, 6)
    pair = with_shared_noise(target, target, 1, Calibration(0.05, 0.0))
    for model in pair:
        model.start(np.array([0]))
    played = play_round(*pair, top_tree(4, 4, 1), Equality(), np.random.default_rng())
    assert played.tokens.size == 5


def test_the_plain_rule_writes_the_same() -> None:
    draft, target = chains(5, 7)
    plain = text(*with_shared_noise(draft, target, 3), no_draft(), 10)
    written: list[int] = []

    def law(rows: FloatArray) -> Any:
        return lambda tokens: rows[[0, *written, *tokens][-1]].tolist()

    def children(tokens: list[int]) -> list[int]:
        place = 1 + len(written) + len(tokens)
        return candidates(law(draft.rows)(tokens), 3, place, 2) if len(tokens) < 2 else []

    calls = 0
    while len(written) < 10:
        written += verify_equality(children, law(target.rows), 3, 1 + len(written))
        calls += 1
    assert written[:10] == plain and calls < 10


def test_chances_are_a_distribution_of_what_the_target_draws() -> None:
    draft, _ = chains(40, 8)
    perturbed = Perturbed(draft, 0, Calibration(0.8, 0.25))
    perturbed.start(np.array([3]))
    (row,) = perturbed.distributions(ROOT, np.array([0]))
    assert row.sum() == pytest.approx(1.0, abs=1e-12)
    order = np.argsort(-draft.rows[3] / noise_row((0,), 1, 40), kind="stable")
    known = int(np.count_nonzero(draft.rows[3]))
    kept = order[: min(32, known)]
    assert row[kept].sum() == pytest.approx(0.75)
    assert (np.diff(row[kept]) <= 0.0).all()
    ratios = draft.rows[3] / noise_row((0,), 1, 40)
    share = (ratios[kept[1]] / ratios[kept[0]]) ** (1 / 0.8)
    assert row[kept[1]] / row[kept[0]] == pytest.approx(share)


def test_a_threshold_keeps_just_the_prefixes_that_reach_it() -> None:
    """Compared with the products of probabilities along all paths of two tokens."""
    draft, _ = chains(6, 3)
    sizes, chooser = [], RandomChooser(np.random.default_rng())
    for seed in range(6):
        perturbed = Perturbed(draft, seed)
        perturbed.start(np.array([0]))
        whole = top_tree(42, 2).draft(perturbed, chooser)
        chances = np.ones(len(whole))
        for node in range(1, len(whole)):
            above = int(whole.parents[node])
            chances[node] = chances[above] * whole.distributions[above][whole.tokens[node]]
        tree = top_tree(42, 2, least=0.1).draft(perturbed, chooser)
        wanted = {tuple(whole.path(node)) for node in np.flatnonzero(chances >= 0.1)}
        assert {tuple(tree.path(node)) for node in range(len(tree))} == wanted
        sizes.append(len(wanted))
    assert min(sizes) < max(sizes) < 43
    assert len(top_tree(9, 3, least=1.0).draft(perturbed, chooser)) == 1
    with pytest.raises(InvalidInputError, match="least probability of a prefix"):
        top_tree(4, 2, least=1.5)


def test_a_scale_is_found_again() -> None:
    """Winners by the choice rule of Luce, with a mass unknown to the draft."""
    rng = np.random.default_rng(1)
    scores = np.sort(-rng.gamma(1.0, 2.0, size=(20_000, 32)), axis=1)[:, ::-1]
    scores -= scores[:, :1]
    for scale in (0.4, 1.5):
        winners = np.argmax(scores / scale + rng.gumbel(size=scores.shape), axis=1)
        winners[rng.random(20_000) < 0.2] = 32
        found = Races(scores, winners).calibration()
        assert found.scale == pytest.approx(scale, rel=0.05)
        assert found.unknown == pytest.approx(0.2, abs=0.02)


def test_one_scale_serves_all_temperatures() -> None:
    """If the errors of the draft logits are Gumbel variables, sigma T is their scale."""
    rng, found = np.random.default_rng(2), []
    logits = rng.normal(scale=2.0, size=(200, 30))
    wrong = 0.8 * rng.gumbel(size=logits.shape)
    for temperature in (0.5, 1.0):
        exact = Sampling(temperature)
        rows = zip(exact.distributions(logits + wrong), exact.distributions(logits), strict=True)
        found.append(race(rows, temperature, seed=3, races=3))
    scales = [one.calibration().scale for one in found]
    assert scales == pytest.approx([0.8, 0.8], rel=0.25)
    assert min(scales) <= concatenate(found).calibration().scale <= max(scales)


def test_the_study_decodes_with_it() -> None:
    draft, target = chains(4, 9)
    prompts = [np.array([0]), np.array([1])]
    found = measure(draft, target, prompts, Setting("equality", 2, 3), max_tokens=20, seeds=(0, 5))
    assert {(run.prompt, run.seed) for run in found.runs} == {(0, 0), (0, 5), (1, 0), (1, 5)}
    for run in found.runs:
        plain = write(GumbelMax(target, (run.seed, run.prompt)), 20, prompts[run.prompt].tolist())
        assert run.tokens[:20].tolist() == plain
        assert run.accepted.size < 20


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda d, t: GumbelMax(t, -1), "the seed of the noise must be .*, got -1"),
        (lambda d, t: GumbelMax(t, None), "the seed of the noise must be .*, got None"),
        (lambda d, t: GumbelMax(t, 0.5), "the seed of the noise must be .*, got 0.5"),
        (lambda d, t: GumbelMax(t, True), "the seed of the noise must be .*, got True"),
        (lambda d, t: GumbelMax(t, ()), "seed of the noise is empty"),
        (lambda d, t: GumbelMax(t, 2**63), "must be below 2\\^63"),
        (lambda d, t: GumbelMax(GumbelMax(t, 0), 0), "already has noise"),
        (lambda d, t: GumbelMax("target", 0), "must be a Model"),
        (lambda d, t: row_key(0, -1), "the place must be .*, got -1"),
        (lambda d, t: with_shared_noise(chains(4, 0)[0], t, 0), "has 4 tokens and the target"),
        (lambda d, t: with_shared_noise(d, t, 0, OTHERS), "was fitted to target t with draft d"),
        (lambda d, t: Calibration(0.0, 0.1), "scale of a calibration must be .* 0, got 0"),
        (lambda d, t: Calibration(1.0, 1.0), "unknown must be less than 1, got 1"),
        (lambda d, t: Calibration(float("nan"), 0.1), "scale"),
        (lambda d, t: Perturbed(d, 0, 1.2), "must be a Calibration"),
        (lambda d, t: race([], 1.0, 0), "rows must not be empty"),
        (
            lambda d, t: text(Perturbed(d, 0), t, top_tree(2, 2), 3),
            "equality needs a deterministic target",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named(wrong: Any, match: str) -> None:
    draft, target = chains(3, 0)
    with pytest.raises(InvalidInputError, match=match):
        wrong(draft, target)
