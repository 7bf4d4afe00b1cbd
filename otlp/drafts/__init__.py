"""Draft schemes: the ways of sampling n tokens at one position.

A scheme answers questions about the distribution of the drafted tuple; it knows nothing of targets,
plans or solvers.  One file a scheme.
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
