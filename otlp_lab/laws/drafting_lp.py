"""Linear program of any drafting: block efficiency of the best valid algorithm on its trees."""

from __future__ import annotations

from collections import defaultdict

from otlp.decode.drafting import Drafting
from otlp.decode.laws.round_laws import check_tabular, draft_trees
from otlp.decode.models.model import check_pair
from otlp.decode.models.tabular import TabularModel
from otlp_lab.laws.written_program import WrittenProgram

Path = tuple[int, ...]


def drafting_optimum(draft: TabularModel, target: TabularModel, drafting: Drafting) -> float:
    """Block efficiency of the best valid algorithm on the trees of a drafting.

    The program maximises 1 + sum of A(x) over the prefixes x that can be drafted.  A(x) is the
    probability that x or an extension of x is accepted.  The constraints are A(empty) = 1,
    A(xy) <= A(x) p(y | x), and a flow: each drafted tree distributes its probability over its
    prefixes, and the prefix x receives the mass A(x) - sum_y A(xy) that is accepted exactly at x.

    Parameters
    ----------
    draft, target : TabularModel
        Models with tables for at least L + 1 tokens.
    drafting : Drafting
        Any drafting.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If the tables end too early.
    OTLPError
        If HiGHS finds no optimum.

    Notes
    -----
    An algorithm is valid if and only if the correction at x is token y with the mass
    A(x) p(y | x) - A(xy), which is the second constraint.  This is the multi-path LP of Thomas and
    Pal, Greedy Multi-Path Block Verification, Theorem 4.3, with explicit flows instead of
    antichains.  There is one column for each pair of a distinct tree and one of its nodes, at least
    V^slots columns.
    """
    check_tabular(draft, target, drafting)
    check_pair(draft, target)
    chances: defaultdict[frozenset[Path], float] = defaultdict(float)
    for tree, chance in draft_trees(draft, drafting):
        drafted = frozenset(tuple(tree.path(node).tolist()) for node in range(len(tree)))
        chances[drafted] += chance
    program = WrittenProgram("the drafting")
    flow: dict[Path, int] = {}
    for at, (nodes, chance) in enumerate(chances.items()):
        supply = program.row(chance)
        for x in nodes:
            if x not in flow:
                flow[x] = program.row()
            program.add(supply, (at, x), 1.0)
            program.add(flow[x], (at, x), -1.0)
    for x, row in flow.items():
        program.gain(x, 1.0)
        program.add(row, x, 1.0)
        if x:
            program.add(flow[x[:-1]], x, -1.0)
            validity = program.row(at_most=True)
            program.add(validity, x, 1.0)
            program.add(validity, x[:-1], -float(target.distribution(x[:-1])[x[-1]]))
    return program.largest()
