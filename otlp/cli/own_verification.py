"""Rules of a user's file over K drafted paths: audited, and then verified with in real decoding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing import AuditSettings
from otlp.auditing.argument_order import read_arguments
from otlp.auditing.gtest import g_test
from otlp.auditing.round_subject import output_of
from otlp.auditing.subject import Failure, call
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
"""Tokens of the models that a rule is audited on."""

TIME_LIMIT = 120.0
"""Of an audit, in seconds."""


CELLS = 5
"""Into which the places of first tokens fall, each with the same probability."""

RATE = 1e-6
"""Of false alarms of a rule's first tokens."""


@dataclass(frozen=True)
class OwnVerification(OfPaths):
    """A function that is called as `otlp audit --length` calls it, and returns tokens.

    What was proved of made-up tokens says nothing of these models: the first token of each round
    is kept as its place in the target's distribution, sorted by q / p, which is uniform if the
    rule is lossless.
    """

    name: str  # type: ignore[misc]
    function: Callable[..., Any]
    places: list[float] = field(default_factory=list, compare=False, repr=False)

    def verify(self, tree: DraftTree, targets: FloatArray, chooser: Chooser) -> Outcome:
        """Hand the paths to the function, and find its tokens in the tree; O(K L V)."""
        if not tree.leaves.size:
            return Outcome(0, targets[0])
        if not isinstance(chooser, RandomChooser):
            raise UnsupportedProblemError(f"{self.name} draws with a generator: it decodes only")
        paths = np.array([tree.ancestry(int(leaf)) for leaf in tree.leaves])
        drafts = np.array([[tree.distributions[node] for node in path[:-1]] for path in paths])
        given = tree.tokens[paths[:, 1:]], targets[paths], drafts
        output = output_of(call(self.function, *given, chooser.rng), paths.shape[1], len(targets.T))
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
                    f"{self.name} returns {list(output)}: all but the last of its tokens have to "
                    "be those of a drafted path"
                )
            node = below[0]
        return Outcome(node, np.eye(1, len(targets.T), output[-1])[0])

    def _place(self, token: int, p: FloatArray, q: FloatArray) -> float:
        if p[token] <= 0.0:
            raise InvalidInputError(f"{self.name} returns {token}, which the target never gives")
        # q / p against q / p of the token, without a division
        ahead, level = q * p[token] > q[token] * p, q * p[token] == q[token] * p
        within = random.Random(len(self.places)).random()
        return float(p[ahead].sum() + within * p[level].sum())

    def check_texts(self) -> None:
        """Say whether the first tokens of all rounds so far follow the target.

        Raises
        ------
        InvalidInputError
            If they do not, at a false-alarm rate of `RATE`.
        """
        if not self.places:
            return
        cells = (np.array(self.places) * CELLS).astype(np.int64).clip(0, CELLS - 1)
        test = g_test(np.bincount(cells, minlength=CELLS), np.full(CELLS, 1.0 / CELLS), RATE)
        if test.rejected:
            raise InvalidInputError(
                f"{self.name} passes its audit, and the first tokens of its {len(cells)} rounds on "
                f"these models do not follow the target (p-value {test.p_value:.1g}): it changes "
                "the text"
            )
        warn(
            f"{self.name}: the first tokens of {len(cells)} rounds follow the target; a total "
            f"variation of {test.detectable:.2g} would have been found"
        )


def with_own_rules(algorithms: Sequence[str]) -> dict[str, OwnVerification]:
    """The rules of files among algorithms, by name."""
    own = (name for name in algorithms if ":" in name)
    return {
        name: OwnVerification(name, read_arguments(load_function(name, "--algorithms"))[0])
        for name in own
    }


def audit_first(settings: Sequence[Setting]) -> None:
    """Audit the rules of files for the K and L that they are to verify.

    Raises
    ------
    InvalidInputError
        If one is not lossless, or cannot be judged: it would change the target's text.
    """
    own = [(one, one.rule.function) for one in settings if isinstance(one.rule, OwnVerification)]
    with progress("auditing", len(own)) as step:
        for one, function in own:
            words = f"{one.algorithm}, K = {one.paths}, L = {one.length}"
            step(words, 0)
            work = partial(
                audit_paths, function, one.paths, one.length, SIZE, 0, None, AuditSettings()
            )
            report = run_in_child(work, TIME_LIMIT, lambda *told: None)
            if not report.passed:
                raise InvalidInputError(
                    f"{words}: {report.verdict.name}, so it would change the text: see otlp audit "
                    f"{one.algorithm} --n {one.paths} --length {one.length}"
                )
            step(words)
            warn(f"{words}: {report.verdict.name} on {SIZE} made-up tokens")


def check_after(settings: Sequence[Setting]) -> None:
    """Hold what the rules of files have written against the target; see `check_texts`."""
    for rule in dict.fromkeys(one.rule for one in settings):
        if isinstance(rule, OwnVerification):
            rule.check_texts()
