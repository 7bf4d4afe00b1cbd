"""Rules of user files for K drafted paths: audited first, then used in real decoding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import AuditSettings
from otlp.auditing.argument_order import read_arguments
from otlp.auditing.audited_round_rule import output_of
from otlp.auditing.audited_rule import Failure, call
from otlp.auditing.gtest import g_test
from otlp.cli.audit import audit_paths, load_function
from otlp.cli.child import run_in_child
from otlp.cli.output import progress, warn
from otlp.decode.choosing import Chooser, RandomChooser
from otlp.decode.tree import DraftTree
from otlp.decode.verification.verification import OfPaths, Outcome
from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.studies.decoding import Setting

SIZE = 3
"""Vocabulary size of the synthetic models on which a rule is audited."""

TIME_LIMIT = 120.0
"""Time limit of an audit, in seconds."""


CELLS = 5
"""Number of equiprobable cells of the test of first tokens."""

RATE = 1e-6
"""False-alarm rate of the test of first tokens."""


@dataclass(frozen=True)
class OwnVerification(OfPaths):
    """Verification with a user function, called as in `otlp audit --length`.

    A proof on synthetic tokens is not a proof on these models.  Therefore the position of each
    round's first token in the target's distribution, sorted by q / p, is recorded: the positions
    are uniform if the rule is lossless.
    """

    name: str  # type: ignore[misc]
    function: Callable[..., Any]
    places: list[float] = field(default_factory=list, compare=False, repr=False)

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Call the function with the paths and find its tokens in the tree; O(K L V)."""
        if not tree.leaves.size:
            return Outcome(0, targets[0])
        if not isinstance(chooser, RandomChooser):
            raise UnsupportedProblemError(f"{self.name} draws at random: use it only to decode")
        paths = np.array([tree.ancestry(int(leaf)) for leaf in tree.leaves])
        drafts = np.array([[tree.distributions[node] for node in path[:-1]] for path in paths])
        args = tree.tokens[paths[:, 1:]], targets[paths], drafts
        output = output_of(call(self.function, *args, chooser.rng), paths.shape[1], len(targets.T))
        if isinstance(output, Failure):
            raise InvalidInputError(f"{self.name}: {output}")
        self.places.append(self._place(output[0], targets[0], tree.distributions[0]))
        node = 0
        for token in output[:-1]:
            below = [
                int(child) for child in tree.draws.get(node, ()) if tree.tokens[child] == token
            ]
            if not below:
                raise InvalidInputError(
                    f"{self.name} returned {list(output)}: all tokens except the last must follow "
                    "a drafted path"
                )
            node = below[0]
        return Outcome(node, np.eye(1, len(targets.T), output[-1])[0])

    def _place(self, token: int, p: FloatArray, q: FloatArray) -> float:
        if p[token] <= 0.0:
            raise InvalidInputError(f"{self.name} returned {token}, which has target probability 0")
        # Compare q / p with q / p of the token without a division.
        ahead, level = q * p[token] > q[token] * p, q * p[token] == q[token] * p
        within = random.Random(len(self.places)).random()
        return float(p[ahead].sum() + within * p[level].sum())

    def check_texts(self) -> None:
        """Test whether the first tokens of all rounds so far follow the target; print the result.

        Raises
        ------
        InvalidInputError
            If the test rejects, at a false-alarm rate of `RATE`.
        """
        if not self.places:
            return
        cells = (np.array(self.places) * CELLS).astype(np.int64).clip(0, CELLS - 1)
        test = g_test(np.bincount(cells, minlength=CELLS), np.full(CELLS, 1.0 / CELLS), RATE)
        if test.rejected:
            raise InvalidInputError(
                f"{self.name} passed its audit, but the first tokens of its {len(cells)} rounds on "
                f"these models do not follow the target (p-value {test.p_value:.1g}): the rule "
                "changes the text"
            )
        warn(
            f"{self.name}: the first tokens of {len(cells)} rounds follow the target (detectable "
            f"total variation: {test.detectable:.2g})"
        )


def load_own_rules(algorithms: Sequence[str]) -> dict[str, OwnVerification]:
    """Load the rules of files among algorithms; return them by name."""
    own = (name for name in algorithms if ":" in name)
    return {
        name: OwnVerification(name, read_arguments(load_function(name, "--algorithms"))[0])
        for name in own
    }


def audit_own_rules(settings: Sequence[Setting]) -> None:
    """Audit the rules of files for the K and L of each setting.

    Raises
    ------
    InvalidInputError
        If a rule is not lossless or cannot be judged.
    """
    own = [(one, one.rule.function) for one in settings if isinstance(one.rule, OwnVerification)]
    with progress("auditing", len(own)) as step:
        for one, function in own:
            words = f"{one.algorithm}, K = {one.paths}, L = {one.length}"
            step(words, 0)
            work = partial(
                audit_paths, function, one.paths, one.length, SIZE, 0, None, AuditSettings()
            )
            report = run_in_child(work, TIME_LIMIT, lambda *_: None)
            if not report.passed:
                raise InvalidInputError(
                    f"{words}: {report.verdict.name}, so the rule would change the text: see otlp "
                    f"audit {one.algorithm} --n {one.paths} --length {one.length}"
                )
            step(words)
            warn(f"{words}: {report.verdict.name} on {SIZE} synthetic tokens")


def check_own_rules(settings: Sequence[Setting]) -> None:
    """Test the texts written with rules of files against the target; see `check_texts`."""
    for rule in dict.fromkeys(one.rule for one in settings):
        if isinstance(rule, OwnVerification):
            rule.check_texts()
