"""Trees from shared noise along other texts: equal to texts drawn with the noise."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from otlp.decode import GumbelMax, Model, Perturbed, Sampling, TopTree, decode
from otlp.decode.models.calibration import Calibration
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError
from otlp_lab.design import WrittenText, design, gather_statistics, top_tree_renewal
from otlp_lab.design.shared_noise import AlongText, along_texts
from otlp_lab.design.written_texts import write_text
from tests.otlp.decode.markov_chains import chains

LENGTH, TOKENS = 2, 24
OURS = Calibration(0.8, 0.05)
DRAFTING = TopTree(3, LENGTH)


def test_the_noise_given_a_text_writes_it() -> None:
    draft, target = chains(6, 1)
    text = write_text(draft, target, np.array([0]), TOKENS, np.random.default_rng(0))
    along = AlongText(draft, text, 5, OURS)
    rows = np.array([along.noise(place) for place in range(TOKENS)])
    assert (rows > 0.0).all()
    assert np.argmax(text.targets / rows, axis=1).tolist() == text.tokens.tolist()


def test_texts_over_fewer_tokens_are_refused() -> None:
    draft, target = chains(6, 1)
    text = write_text(draft, target, np.array([0]), TOKENS, np.random.default_rng(0))
    fewer = WrittenText(text.tokens % 4, text.targets[:, :4], text.drafts[:, :4])
    with pytest.raises(InvalidInputError, match="of the draft, 6 tokens, got 4"):
        AlongText(draft, fewer, 5, OURS)


@pytest.mark.parametrize(
    ("count", "accuracy"), [(20, 0.1), pytest.param(150, 0.05, marks=pytest.mark.slow)]
)
def test_renewal_is_that_of_texts_that_the_noise_drew(count: int, accuracy: float) -> None:
    draft, target = chains(6, 2)
    rng = np.random.default_rng(1)
    drawn = [write_text(draft, target, np.array([0]), TOKENS, rng) for _ in range(count)]

    def begun(number: int) -> tuple[Model, IntArray]:
        draft.start(np.array([0]))
        return draft, drawn[number].tokens

    found = top_tree_renewal(along_texts(begun, drawn, OURS), drawn, DRAFTING, LENGTH)

    @cache
    def written(number: int) -> IntArray:
        seeded = GumbelMax(target, number)
        (text,) = decode(seeded, [np.array([0])], TOKENS, np.random.default_rng())
        return text.tokens

    def noisy(number: int) -> tuple[Model, IntArray]:
        knowing = Perturbed(draft, number, OURS)
        knowing.start(np.array([0]))
        return knowing, written(number)

    texts = [WrittenText(written(n), drawn[0].targets, drawn[0].drafts) for n in range(count)]
    own = top_tree_renewal(noisy, texts, DRAFTING, LENGTH)
    error = np.hypot(found.error, own.error)
    assert abs(found.efficiency - own.efficiency) < 4.0 * error
    assert error < accuracy


def test_design_chooses_between_transport_and_shared_noise() -> None:
    draft, target = chains(6, 3)
    rng = np.random.default_rng(2)
    texts = [write_text(draft, target, np.array([0]), 12, rng) for _ in range(6)]

    def begun(number: int) -> tuple[Model, IntArray]:
        draft.start(np.array([0]))
        return draft, texts[number].tokens

    statistics = gather_statistics(
        texts, draft="d", target="t", sampling=Sampling(), budgets=(3,), length=2, begun=begun
    )
    own = design(statistics, 3, families=["shared-noise"])
    assert own.verification.name == "equality" and str(own) == "top_tree(3, 2)"
    assert own.efficiency > 1.2
    every = design(statistics, 3)
    assert every.efficiency == pytest.approx(max(one.efficiency for one in statistics.candidates))
