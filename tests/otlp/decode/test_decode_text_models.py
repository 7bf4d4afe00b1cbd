"""Draft models that are functions of the text: checked by hand, and lossless as drafts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otlp.decode import (
    Copying,
    Mixture,
    Model,
    NGram,
    PromptLookup,
    Sampling,
    TabularModel,
    enumerate_choices,
    find_verification,
    play_round,
    random_pair,
)
from otlp.decode.tree import ROOT, TokenTree
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError

TEXTS = st.lists(st.integers(0, 3), max_size=12)
V = 4


def after(texts: list[list[int]], end: list[int]) -> Counter[int]:
    """Count how often each token follows an occurrence of `end` in the texts."""
    return Counter(
        text[place + len(end)]
        for text in texts
        for place in range(len(text) - len(end))
        if text[place : place + len(end)] == end
    )


def witten_bell(texts: list[list[int]], end: list[int]) -> FloatArray:
    shorter = witten_bell(texts, end[1:]) if end else np.full(V, 1 / V)
    counts = after(texts, end)
    total = sum(counts.values()) + len(counts)
    if not total:
        return shorter
    return np.array([counts[y] + len(counts) * shorter[y] for y in range(V)]) / total


@given(TEXTS, TEXTS, st.integers(1, 5))
def test_n_grams_are_those_of_the_formula(text: list[int], corpus: list[int], order: int) -> None:
    found = NGram(V, order, corpus).distribution(np.array(text, dtype=np.int64))
    end = text[max(0, len(text) - order + 1) :]
    np.testing.assert_allclose(found, witten_bell([corpus, text], end), atol=1e-14)
    assert found.min() > 0.0 and abs(found.sum() - 1.0) < 1e-14


@given(TEXTS, st.integers(1, 5))
def test_lookup_takes_the_longest_end_that_was_there_before(text: list[int], longest: int) -> None:
    found = PromptLookup(V, longest).distribution(np.array(text, dtype=np.int64))
    counts = Counter(text or range(V))
    for length in range(1, min(longest, len(text)) + 1):
        counts = after([text], text[-length:]) or counts
    wanted = np.array([counts[y] for y in range(V)]) / sum(counts.values())
    np.testing.assert_allclose(found, wanted, atol=1e-15)


@given(TEXTS, st.lists(st.integers(0, 3), max_size=3), st.integers(1, 3))
def test_a_copy_has_the_share_of_the_longest_repeated_end(
    context: list[int], drafted: list[int], longest: int
) -> None:
    shares, own, text = (0.25, 0.5, 1.0)[:longest], NGram(V), context + drafted
    draft = Copying(own, shares)
    assert draft.name != Copying(own).name == "copying:ngram"
    draft.start(np.array(context, dtype=np.int64))
    chain = TokenTree(np.array([-1, *drafted]), np.arange(-1, len(drafted)))
    found = draft.distributions(chain, np.array([len(drafted)]))[0]
    wanted = own.distribution(np.array(text, dtype=np.int64))
    ends = [after([text], text[-length:]) for length in range(1, min(longest, len(text)) + 1)]
    met = [counts for counts in ends if counts]
    if met:
        copied = np.array([met[-1][y] for y in range(V)]) / sum(met[-1].values())
        share = shares[len(met) - 1]
        wanted = (1.0 - share) * wanted + share * copied
    np.testing.assert_allclose(found, wanted, atol=1e-14)


def test_large_and_small_counts_agree() -> None:
    corpus = np.random.default_rng(0).integers(0, 100, 3000)
    model = NGram(100, 3, corpus)
    few, many = corpus[:4], corpus
    for tokens in (few, many):
        found, counts = model._count(tokens)
        assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == Counter(tokens.tolist())


@pytest.mark.parametrize("kind", ["ngram", "lookup", "mixture", "copying"])
@pytest.mark.parametrize("algorithm", ["two-slice", "traversal", "tournament", "k-seq"])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_drafts_that_follow_the_text_keep_the_target(
    kind: str, algorithm: str, temperature: float
) -> None:
    """All decisions of two rounds, including drafting, against the joint target distribution."""
    size, length = 2, 3
    network, target = random_pair(size, length, np.random.default_rng(1))
    made: dict[str, Model] = {
        "ngram": NGram(size, 2, [0, 0, 1, 0, 0]),
        "lookup": PromptLookup(size),
        "mixture": Mixture([network, PromptLookup(size)], [0.75, 0.25]),
        "copying": Copying(network, [0.5, 1.0]),
    }
    draft = made[kind]
    draft.sampling = Sampling(temperature)
    verification = find_verification(algorithm)
    drafting = verification.drafting(2, 1)
    found = np.zeros((size,) * length)

    def run(chooser: Any) -> tuple[int, ...]:
        text: tuple[int, ...] = ()
        for model in (draft, target):
            model.start(np.empty(0, dtype=np.int64))
        for _ in range(2):
            if len(text) < length - 1:
                text += tuple(
                    play_round(draft, target, drafting, verification, chooser).tokens.tolist()
                )
        return text

    for text, chance in enumerate_choices(run):
        found[text] += chance * rest(target, text)
    np.testing.assert_allclose(found, target.joint(length), atol=1e-12)


def rest(target: TabularModel, text: tuple[int, ...]) -> FloatArray:
    """Return the distribution of the continuation of a text, to the end of the tables."""
    return target.joint(target.length)[text] / target.joint(len(text))[text]


def test_a_mixture_weighs_and_then_tempers() -> None:
    parts = [NGram(3), PromptLookup(3)]
    text = np.array([0, 1, 0])
    mixed = Mixture(parts, [0.25, 0.75], Sampling(0.5))
    mixed.start(text)
    plain = 0.25 * parts[0].distribution(text) + 0.75 * parts[1].distribution(text)
    wanted = plain**2 / (plain**2).sum()
    np.testing.assert_allclose(mixed.distributions(ROOT, np.array([0]))[0], wanted, atol=1e-14)
    assert mixed.name == "0.25*ngram+0.75*lookup" and mixed.context_limit is None


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: NGram(0), "vocab_size"),
        (lambda: NGram(3, 0), "order"),
        (lambda: NGram(3, corpus=[3]), r"must hold token ids in \[0, 3\), got 3"),
        (lambda: NGram(3, sampling=0.5), "sampling"),
        (lambda: PromptLookup(3, 0), "longest"),
        (lambda: Mixture([]), "at least one"),
        (lambda: Mixture([NGram(3), NGram(4)]), "the same vocabulary size, got ngram 3, ngram 4"),
        (lambda: Mixture([NGram(3)], [0.5, 0.5]), r"one weight per model \(1\), got 2"),
        (lambda: Mixture([NGram(3), NGram(3)], [0.5, 0.6]), "must sum to 1 .*, got 1.1"),
        (lambda: Mixture([3]), "a model of the mixture"),
        (lambda: Copying(3), "the model of a Copying"),
        (lambda: Copying(NGram(3), []), r"shares must be a non-empty .*, got shape \(0,\)"),
        (lambda: Copying(Copying(NGram(3))), "copying:ngram already copies"),
        (lambda: Copying(NGram(3), [0.5, 1.5]), r"shares must be numbers in \[0, 1\]"),
        (lambda: Copying(NGram(3), [np.nan]), "shares"),
    ],
)
def test_what_makes_no_model_is_refused(make: Any, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part):
        make()


def test_drafts_by_name(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from otlp.decode.models.loading import load_draft, load_pair

    corpus = tmp_path / "corpus.txt"
    corpus.write_text("import os\nimport sys\n", encoding="utf-8")
    draft, target = load_pair("0.5*ngram+0.25*trained:draft+0.25*lookup", device="cpu")
    assert draft.name == "0.5*ngram+0.25*trained:draft+0.25*lookup"
    copying = load_draft("copying:0.5*ngram+0.5*trained:draft", target, sampling=Sampling(0.5))
    assert copying.name == "copying:0.5*ngram+0.5*trained:draft"
    assert copying.sampling.temperature == 0.5
    assert load_draft("0.5*copying:ngram+0.5*lookup", target).name == "0.5*copying:ngram+0.5*lookup"
    for name, usual in (
        ("prompt_lookup", "lookup"), ("PLD", "lookup"), ("n-gram", "ngram"),
        ("0.5*N-grams+0.5*lookup", "0.5*ngram+0.5*lookup"), (f"n-gram:{corpus}", f"ngram:{corpus}"),
    ):  # fmt: skip
        assert load_draft(name, target).name == usual
    counted = load_draft(f"ngram:{corpus}", target, device="cpu", sampling=Sampling(0.0))
    text = target.encode("import")
    counted.start(text)
    likeliest = int(counted.distributions(ROOT, np.array([0]))[0].argmax())
    assert likeliest == target.encode("import os")[text.size]
    (tmp_path / "a+b").mkdir()
    plus = corpus.rename(tmp_path / "a+b" / "c++.txt")
    for name in (f"ngram:{plus}", f"0.5*lookup+0.5*ngram:{plus}", f"0.5*ngram:{plus}+0.5*lookup"):
        assert load_draft(name, target).name == name
    for name, part in (
        ("0.5*ngram+lookup", "a numeric weight for every part"),
        ("0.5*ngram+0.6*lookup", "must sum to 1 .*, got 1.1"),
        ("ngram:nowhere.txt", "cannot read the corpus"),
        ("ngram+./nowhere", "no model folder"),
        ("copying:./nowhere", "no model folder"),
        ("copying:", "config.json"),
    ):
        with pytest.raises(InvalidInputError, match=part):
            load_draft(name, target, device="cpu")
