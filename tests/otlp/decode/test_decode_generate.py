"""Speculative decoding inside transformers' generate, and sampled rounds on the trained pair."""

from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from otlp.auditing.gtest import g_test  # noqa: E402
from otlp.decode import (  # noqa: E402
    ALGORITHMS,
    Sampling,
    TabularModel,
    TokenTree,
    generate,
    hub_pairs,
    iid_paths,
    play_round,
)
from otlp.decode.models.loading import load_pair  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402

PROMPT = "def main(argv):\n    "
FAMILY = 1e-3
"""False-alarm rate of all sampled tests of this file together."""
SAMPLED = [
    "speculative",
    "block",
    "naive",
    "recursive-rejection",
    "k-seq",
    "hub",
    "optimal",
    "global-resolution",
    "greedy-multipath",
    "traversal",
    "two-slice",
    "tournament",
    "autoregressive",
]
LONG = ("k-seq", "hub", "optimal", "global-resolution", "two-slice")
"""Of these, what takes more than some 15 s."""

TESTS = len(SAMPLED) + 1


@pytest.fixture(scope="module")
def pair():
    return load_pair(device="cpu")


def continue_with(pair, seed=0, **options):
    draft, target = pair
    transformers.set_seed(seed)
    inputs = target.tokenizer(PROMPT, return_tensors="pt")
    return target.model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        custom_generate=generate,
        draft_model=draft.model,
        **options,
    )


def test_greedy_text_is_that_of_plain_generate(pair):
    target = pair[1]
    inputs = target.tokenizer(PROMPT, return_tensors="pt")
    options = {"do_sample": False, "max_new_tokens": 12, "repetition_penalty": 1.3}
    plain = target.model.generate(**inputs, **options)
    found = continue_with(pair, **options)
    assert torch.equal(plain, found)


def test_lengths_seeds_and_dictionaries(pair):
    options = {"do_sample": True, "max_new_tokens": 7, "paths": 3, "length": 3}
    one = continue_with(pair, seed=4, **options)
    prompt = pair[1].encode(PROMPT).size
    assert one.shape == (1, prompt + 7)
    again = continue_with(pair, seed=4, return_dict_in_generate=True, **options)
    assert torch.equal(one, again.sequences)
    stop = int(one[0, prompt + 2])
    short = continue_with(pair, seed=4, eos_token_id=stop, **options)
    assert int(short[0, -1]) == stop and short.shape[1] <= prompt + 3


def test_what_generate_cannot_do_is_refused(pair):
    options = {"do_sample": True, "max_new_tokens": 2}
    for more, part in (
        ({"paths": 0}, "K is 0"),
        ({"length": 0}, "L is 0"),
        ({"verification": "blocks"}, "'blocks'"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "output_attentions"),
    ):
        with pytest.raises(InvalidInputError, match=part):
            continue_with(pair, **options, **more)
    with pytest.raises(UnsupportedProblemError, match=r"one i\.i\.d\. path"):
        continue_with(pair, verification="block", **options)
    with pytest.raises(InvalidInputError, match="draft_model"):
        pair[1].model.generate(
            torch.tensor([[5]]), custom_generate=generate, max_new_tokens=1, do_sample=True
        )


@pytest.mark.slow
def test_generated_tokens_follow_the_law_of_the_target(pair):
    """Two tokens after the prompt, top-3, from generate itself."""
    target = pair[1]
    prompt = target.encode(PROMPT)
    joint = tabular(target, prompt, Sampling(1.0, 3), 2)
    index, law = joint.outcomes(2)
    counts = np.zeros(law.size)
    total = 300
    for seed in range(total):
        found = continue_with(pair, seed=seed, do_sample=True, top_k=3, max_new_tokens=2, length=1)
        counts[index[tuple(found[0, prompt.size :].tolist())]] += 1
    assert not g_test(counts, law, FAMILY / TESTS).rejected


class Cached(TabularModel):
    """The laws of a language model after one prompt, over the tokens that top-k leaves."""

    def __init__(self, tables, tokens):
        super().__init__(tables)
        self.tokens = tokens

    def outcomes(self, length):
        """Number of each sequence of token ids, and the law of the sequences."""
        law = self.joint(length).reshape(-1)
        shape = (self.vocab_size,) * length
        places = np.stack(np.unravel_index(np.arange(law.size), shape), axis=1)
        return {tuple(self.tokens[place].tolist()): i for i, place in enumerate(places)}, law


def tabular(model, prompt, sampling, length, tokens=None):
    """Tabulate the next `length` tokens; the laws are the model's own, on a few tokens.

    Without `tokens`, these are all that can come up.
    """

    def laws(prefixes):
        root = np.array([-1])
        found = []
        for prefix in prefixes:
            model.start(np.append(prompt, prefix).astype(np.int64))
            found.append(
                sampling.distributions(model.logits(TokenTree(root, root), np.array([0])))[0]
            )
        return np.stack(found)

    if tokens is None:
        reached = {()}
        seen = set()
        for _ in range(length):
            ordered = sorted(reached)
            support = [np.flatnonzero(law).tolist() for law in laws(ordered)]
            reached = {(*p, t) for p, ts in zip(ordered, support, strict=True) for t in ts}
            seen |= {t for ts in support for t in ts}
        tokens = np.array(sorted(seen))
    tables = []
    for depth in range(length):
        shape = (tokens.size,) * depth
        rows = laws([tokens[list(place)].tolist() for place in np.ndindex(shape)])[:, tokens]
        if np.any(rows.sum(axis=1) == 0.0):
            rows[rows.sum(axis=1) == 0.0] = 1.0
        rows /= rows.sum(axis=1, keepdims=True)
        tables.append(rows.reshape(*shape, tokens.size))
    return Cached(tables, tokens)


@pytest.fixture(scope="module")
def tables(pair):
    """Draft and target laws of the trained pair on the target's eight likeliest tokens."""
    target = pair[1]
    prompt = target.encode(PROMPT)
    target.start(prompt)
    root = np.array([-1])
    likeliest = np.argsort(-target.logits(TokenTree(root, root), np.array([0]))[0])[:8]
    both = [tabular(model, prompt, Sampling(), 3, np.sort(likeliest)) for model in pair]
    return both


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in SAMPLED],
)
def test_rounds_follow_the_law_of_the_target(tables, name):
    """20,000 rounds, K = 2 and L = 2, each filled up to three tokens from the target.

    `hub` drafts its pairs on the binary tree of that depth.
    """
    draft, target = tables
    rng = np.random.default_rng(20240613)
    paths = 1 if name in ("speculative", "block") else 2
    drafting = hub_pairs(2) if name == "hub" else iid_paths(paths, 2)
    algorithm = ALGORITHMS[name]
    total = 20_000
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(total):
        for model in tables:
            model.start(np.empty(0, dtype=np.int64))
        text = play_round(draft, target, drafting, algorithm, rng).tokens.tolist()
        while len(text) < 3:
            text.append(int(rng.choice(target.vocab_size, p=target.distribution(text))))
        counts[tuple(text)] += 1
    joint = target.joint(3)
    seen = np.zeros(joint.shape)
    for text, count in counts.items():
        seen[text] = count
    assert not g_test(seen.ravel(), joint.ravel(), FAMILY / TESTS).rejected
