"""The decoding loop: its law by enumeration, end tokens, context limits, and refusals."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np
import pytest

from otlp import decode
from otlp.errors import InvalidInputError, UnsupportedProblemError

PAIR = decode.random_pair(2, 8, np.random.default_rng(3))


class Short(decode.TabularModel):
    """A model with a short context, or with an end token."""

    limit: int | None = None
    last: tuple[int, ...] = ()

    @property
    def context_limit(self):
        return self.limit

    @property
    def ends(self):
        return self.last


def law_of(target, prompt, tokens, **how):
    """Return the exact law of the text after a prompt."""
    found = defaultdict(float)
    runs = decode.enumerate_choices(
        lambda chooser: decode.decode(target, [prompt], tokens, chooser, **how)
    )
    for (text,), probability in runs:
        found[tuple(text.tokens.tolist())] += probability
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for text, probability in one.items():
        assert probability == pytest.approx(other[text], abs=1e-12)


@pytest.mark.parametrize(
    ("drafting", "rule"),
    [
        (decode.iid_paths(1, 2), decode.Block()),
        (decode.iid_paths(2, 1), decode.TwoSlicePaths()),
        (decode.prefix_tree([1, 2]), decode.Traversal()),
        (decode.top_tree(2, 2), decode.TargetOnly()),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize("ends", [(), (1,)], ids=["no end", "an end"])
def test_a_text_has_the_law_of_plain_decoding(drafting, rule, ends):
    draft, target = PAIR
    prompt = np.array([0])
    how = {"draft": draft, "drafting": drafting, "verification": rule, "ends": ends}
    assert_same(law_of(target, prompt, 3, ends=ends), law_of(target, prompt, 3, **how))


@pytest.mark.parametrize("limits", [(None, 4), (3, None), (3, 5), (1, None), (5, 3)])
def test_contexts_that_end_shorten_what_is_drafted(limits):
    draft, target = (Short(model.tables) for model in PAIR)
    draft.limit, target.limit = limits
    prompt = np.array([0, 1])
    how = {"draft": draft, "drafting": decode.iid_paths(1, 2), "verification": decode.Block()}
    found = law_of(target, prompt, 4, **how)
    assert_same(law_of(target, prompt, 4), found)
    # A context of five tokens is used fully, and gives a sixth token.
    wanted = 4 if target.limit is None else min(4, target.limit + 1 - prompt.size)
    assert {len(text) for text in found} == {wanted}


def test_prompts_of_different_lengths_and_the_targets_own_ends():
    _, target = PAIR
    ending = Short(target.tables)
    ending.last = (0,)
    texts = decode.decode(ending, [[1], [1, 0], []], 4, np.random.default_rng(0))
    for text in texts:
        assert 0 not in text.tokens[:-1]
        assert text.tokens.size == len(text.rounds) <= 4
        assert text.tokens.size == 4 or text.tokens[-1] == 0


def test_models_stand_before_the_round_that_is_given_out():
    draft, target = PAIR
    for model in PAIR:
        model.start(np.array([1]))
    plan = draft, target, decode.iid_paths(2, 1), decode.Traversal(), np.random.default_rng(0)
    written = []
    for played in decode.rounds(*plan, held=1, tokens=4):
        before = target.distributions(played.tree, np.array([played.outcome.node]))[0]
        text = [1, *written, *played.accepted]
        np.testing.assert_array_equal(before, target.distribution(text))
        written += played.tokens.tolist()
    assert len(written) >= 4


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"tokens": 0}, InvalidInputError, "tokens must be .*, got 0"),
        ({"prompts": []}, InvalidInputError, "list of 1 prompt or more"),
        ({"prompts": None}, InvalidInputError, "prompts must be .* got None"),
        ({"ends": 3}, InvalidInputError, "ends"),
        ({"prompts": [[0], [7]]}, InvalidInputError, "prompt 2"),
        ({"draft": None}, InvalidInputError, "or none of the three"),
        ({"verification": None}, InvalidInputError, "or none of the three"),
        ({"verification": decode.TwoSlicePaths(), "drafting": decode.prefix_tree([2, 2])},
         UnsupportedProblemError, "two-slice"),
        ({"ends": [9]}, InvalidInputError, "ends"),
        ({"rng": 3}, InvalidInputError, "random generator must be a Generator, got 3"),
    ],
)  # fmt: skip
def test_what_it_refuses(change, kind, words):
    draft, target = PAIR
    how = {"prompts": [[0]], "tokens": 2, "rng": np.random.default_rng(0), "draft": draft}
    how |= {"drafting": decode.iid_paths(1, 1), "verification": decode.Block()}
    run = partial(decode.decode, target)
    run(**how)
    with pytest.raises(kind, match=words):
        run(**how | change)
