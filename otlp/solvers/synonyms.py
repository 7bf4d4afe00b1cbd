"""Alternative names of solvers: names of papers, rules and engines."""

from __future__ import annotations

import re
from collections.abc import Mapping

SYNONYMS: Mapping[str, str] = {
    word: name
    for name, words in {
        "auto": "optimal optimum otlp",
        "linear-program": "highs lp otm optimal-transport",
        "max-flow": "maxflow maximum-flow flow ortools or-tools graph-tool",
        "slackness": "complementary-slackness",
        "global-resolution": "globalresolution",
        "martingale": "iid",
        "random-ranks": "randomranks",
        "random-weights": "randomweights",
        "orderings": "priority-ordering",
        "greedy": "greedy-drafts",
        "hub": "spechub",
        "speculative-sampling": "leviathan chen rejection-sampling speculative-decoding",
        "k-seq": "kseq spectr",
        "recursive-rejection": "specinfer rrs recursive-rejection-sampling eagle multi-round",
        "naive": "target-only",
    }.items()
    for word in words.split()
}
"""Mapping of alternative names, in lower case with hyphens, to the names in `SOLVERS`."""


def solver_name(word: str) -> str:
    """Return the solver name for an alternative name; return any other word unchanged.

    Examples
    --------
    >>> from otlp.solvers.synonyms import solver_name
    >>> solver_name("SpecInfer"), solver_name("HiGHS"), solver_name("nobody")
    ('recursive-rejection', 'linear-program', 'nobody')
    """
    return SYNONYMS.get(re.sub(r"[\s_]+", "-", word.strip().lower()), word)
