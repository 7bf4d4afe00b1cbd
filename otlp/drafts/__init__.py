"""Draft schemes: distributions of n tokens drafted at one position.

A scheme computes properties of the distribution of the drafted tuple, and does not depend on
targets, plans or solvers.  One file per scheme.
"""

from otlp.drafts.explicit import Explicit
from otlp.drafts.greedy import Greedy
from otlp.drafts.hub import Hub
from otlp.drafts.iid import IID
from otlp.drafts.independent import Independent
from otlp.drafts.scheme import DraftScheme
from otlp.drafts.token_sets import DraftTuples, TokenSets
from otlp.drafts.without_replacement import WithoutReplacement

__all__ = [
    "IID",
    "DraftScheme",
    "DraftTuples",
    "Explicit",
    "Greedy",
    "Hub",
    "Independent",
    "TokenSets",
    "WithoutReplacement",
]
