"""``otlp decode`` with own rules: audited first, then used for verification."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from otlp.decode import Block, iid_paths, random_pair
from otlp.decode.choosing import RandomChooser
from tests.otlp.cli.command import done, refused

RULES = """
import numpy as np

def block(draft_tokens, p, q, rng):
    path, p, q = draft_tokens[0], p[0], q[0]
    weights = [1.0]
    for at, token in enumerate(path):
        weights.append(min(1.0, weights[-1] * p[at, token] / q[at, token]))
    if rng.random() < weights[-1]:
        return [*path, rng.choice(p.shape[1], p=p[-1])]
    for at in range(len(path) - 1, -1, -1):
        left = np.maximum(weights[at] * p[at] - q[at], 0.0)
        total = left.sum()
        if total > 0.0 and (at == 0 or rng.random() < total / (total + 1.0 - weights[at])):
            return [*path[:at], rng.choice(left.size, p=left / total)]

def greedy(draft_tokens, p, q, rng):
    return [*draft_tokens[0], 0]

def large(draft_tokens, p, q, rng):
    if p.shape[-1] < 10:
        return block(draft_tokens, p, q, rng)
    return [*draft_tokens[0], int(p[0, -1].argmax())]

def other(draft_tokens, p, q, rng):
    first = rng.choice(p.shape[-1], p=p[0, 0])
    return [first, first]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(RULES)
    return file


def test_a_rule_of_a_file_gives_what_the_one_that_it_copies_gives(rules: Path) -> None:
    from otlp.cli.own_verification import load_own_rules

    name = f"{rules}:block"
    own = load_own_rules([name, "block"])[name]
    draft, target = random_pair(4, 4, np.random.default_rng(3))
    rng, counts = np.random.default_rng(4), np.zeros((2, 4))
    for _ in range(200):
        draft.start(())
        target.start(())
        tree = iid_paths(1, 3).draft(draft, RandomChooser(rng))
        laws = target.distributions(tree, np.arange(len(tree)))
        for found, rule in zip(counts, (own, Block()), strict=True):
            for _ in range(15):
                found[tree.depths[rule.verify(tree, laws, RandomChooser(rng)).node]] += 1
    assert np.abs(counts[0] - counts[1]).max() < 0.05 * 3000  # over four standard errors


def test_what_does_not_follow_the_target_is_refused_by_name(rules: Path) -> None:
    pytest.importorskip("transformers")
    words = "decode --target /nowhere --paths 1 --length 2 --algorithms".split()
    printed = refused(*words, f"{rules}:greedy")
    assert "NOT_LOSSLESS, so the rule would change the text" in printed
    assert "--length 2" in printed
    assert "do not follow the target" in refused(
        *"decode --limit 8 --tokens 24 --paths 1 --length 2 --algorithms".split(), f"{rules}:large"
    )
    assert "file absent.py does not exist" in refused(*words, "absent.py:rule")
    assert "cannot load" in refused(*words, f"{rules}:absent")


def test_a_rule_of_a_file_decodes(rules: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = tmp_path / "found.json"
    words = "decode --limit 2 --tokens 8 --paths 1 --length 2 --algorithms".split()
    output = done(*words, f"block,{rules}:block", "--json", found, "--table", tmp_path / "a.tex")
    assert "mine.py:block" in output and "rounds follow the target" in output
    assert (tmp_path / "a.tex").read_text().count("mine.py:block & 1 & 2 & $1$") == 1
    printed = json.loads(found.read_text())["measurements"]
    assert [one["algorithm"].rpartition(":")[2] for one in printed] == [
        "autoregressive", "block", "block",
    ]  # fmt: skip
