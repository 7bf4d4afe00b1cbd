"""Rules of a user's file over K drafted paths: audited, and then verified with in real decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from otlp.auditing.argument_order import read_arguments
from otlp.auditing.round_subject import output_of
from otlp.auditing.subject import Failure, call
from otlp.cli.audit import audit_paths, load_function
from otlp.cli.child import run_in_child
from otlp.cli.output import progress
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


@dataclass(frozen=True)
class OwnVerification(OfPaths):
    """A function that is called as `otlp audit --length` calls it, and returns tokens."""

    name: str  # type: ignore[misc]
    function: Callable[..., Any]

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
            raise InvalidInputError(f"{self.name} {output}")
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
            work = partial(audit_paths, function, one.paths, one.length, SIZE, 0, {})
            report = run_in_child(work, TIME_LIMIT, lambda *told: None)
            if not report.passed:
                raise InvalidInputError(
                    f"{words}: {report.verdict.name}, so it would change the text: see otlp audit "
                    f"{one.algorithm} --n {one.paths} --length {one.length}"
                )
            step(words)
