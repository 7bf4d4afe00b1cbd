"""Greedy Multi-Path Block Verification: its statements, by enumeration.

The selections of the library are not used: paths and tuples of paths are listed, and selection
rules are random.
"""

from itertools import combinations, product

import numpy as np
import pytest
import scipy

from otlp.decode import (
    ALGORITHMS,
    enumerate_choices,
    iid_paths,
    multipath_optimum,
    random_pair,
)
from otlp.decode.laws.round_laws import draft_trees
from otlp_lab.laws.prefix_laws import prefix_law

CASES = [(2, 2, 2), (2, 2, 3), (3, 2, 2), (2, 3, 2)]
"""V, L and K."""
TINY = [(2, 1, 2), (2, 2, 2), (3, 1, 3)]


def prefixes(size, length):
    """All prefixes of up to L tokens, the empty one first."""
    return [x for depth in range(length + 1) for x in product(range(size), repeat=depth)]


def law(model, length):
    """Return the mass of every prefix."""
    found = {(): 1.0}
    for depth in range(length):
        for x in product(range(model.vocab_size), repeat=depth):
            for y, mass in enumerate(model.distribution(x)):
                found[(*x, y)] = found[x] * mass
    return found


def extended(masses, size, length):
    """Compute the masses of prefixes from those of whole paths."""
    return {
        x: sum(mass for path, mass in masses.items() if path[: len(x)] == x)
        for x in prefixes(size, length)
    }


def selected(q, paths, count, rng):
    """Return the law of one of K i.i.d. paths, selected by a random rule that sees all paths."""
    masses = dict.fromkeys(paths, 0.0)
    for drawn in product(paths, repeat=count):
        shares = rng.dirichlet(np.full(count, rng.choice([0.05, 1.0])))
        for path, share in zip(drawn, shares, strict=True):
            masses[path] += share * np.prod([q[one] for one in drawn])
    return masses


def antichains(nodes):
    """Return sets of prefixes in which no prefix begins another."""
    for size in range(1, len(nodes) + 1):
        for some in combinations(nodes, size):
            if not any(b[: len(a)] == a for a in some for b in some if a != b):
                yield some


def objective(p, skewed, length):
    """Eq. 21: the sum over prefixes x of p(x) min over prefixes x' of x of Q(x') / p(x')."""
    return sum(
        p[x] * min(skewed[x[:at]] / p[x[:at]] for at in range(len(x) + 1))
        for x in p
        if len(x) <= length
    )


@pytest.mark.parametrize(("size", "length", "count"), TINY)
def test_lemma_4_5_what_a_selection_can_make(size, length, count):
    """A law on paths is that of a selection if and only if every antichain satisfies its bound."""
    rng = np.random.default_rng(0)
    paths = list(product(range(size), repeat=length))
    sets = list(antichains(prefixes(size, length)))
    tuples = list(product(range(len(paths)), repeat=count))
    kept = broken = 0
    for seed in range(30):
        draft, _ = random_pair(size, length, np.random.default_rng(seed))
        q = law(draft, length)
        chosen = selected(q, paths, count, rng)
        # towards one path, beyond or within the reach of any selection
        share = rng.uniform(0.0, 1.0)
        wanted = {path: (1 - share) * mass for path, mass in chosen.items()}
        wanted[paths[rng.integers(len(paths))]] += share
        mass = extended(wanted, size, length)
        drafted = [sum(q[x] for x in some) for some in sets]
        slack = min(
            1 - (1 - total) ** count - sum(mass[x] for x in some)
            for some, total in zip(sets, drafted, strict=True)
            if total < 1 - 1e-12  # the others say 1 <= 1
        )
        if abs(slack) < 1e-9:
            continue
        # the transport between tuples and the paths in them
        pairs = [(row, path) for row, one in enumerate(tuples) for path in set(one)]
        rows = np.zeros((len(tuples) + len(paths), len(pairs)))
        for at, (row, path) in enumerate(pairs):
            rows[row, at] = rows[len(tuples) + path, at] = 1.0
        given = [np.prod([q[paths[path]] for path in one]) for one in tuples]
        right = np.array([*given, *(wanted[path] for path in paths)])
        found = scipy.optimize.linprog(np.zeros(len(pairs)), A_eq=rows, b_eq=right)
        assert found.success == (slack > 0.0)
        kept, broken = kept + found.success, broken + (not found.success)
    assert min(kept, broken) >= 3


@pytest.mark.parametrize(("size", "length", "count"), CASES)
def test_every_selection_keeps_the_bound_of_lemma_4_5(size, length, count):
    draft, _ = random_pair(size, length, np.random.default_rng(1))
    q = law(draft, length)
    paths = list(product(range(size), repeat=length))
    for seed in range(5):
        chosen = selected(q, paths, count, np.random.default_rng(seed))
        mass = extended(chosen, size, length)
        for some in antichains(paths):
            bound = 1 - (1 - sum(q[x] for x in some)) ** count
            assert sum(mass[x] for x in some) <= bound + 1e-12


@pytest.mark.parametrize(("size", "length", "count"), CASES)
def test_eq_21_is_the_block_efficiency_of_greedy_selection(size, length, count):
    """The highest path in the order of p/q, listed, against the law of rounds; and Lemma 4.7."""
    for seed in range(4):
        draft, target = random_pair(size, length + 1, np.random.default_rng(seed))
        p, q = law(target, length), law(draft, length)
        paths = list(product(range(size), repeat=length))

        def rank(path, p=p, q=q):
            ratios = [p[path[:at]] * q[path[: at - 1]] for at in range(1, len(path) + 1)]
            below = [q[path[:at]] * p[path[: at - 1]] for at in range(1, len(path) + 1)]
            return [(a / b, y) for a, b, y in zip(ratios, below, path, strict=True)]

        chosen = dict.fromkeys(paths, 0.0)
        for drawn in product(paths, repeat=count):
            chosen[max(drawn, key=rank)] += np.prod([q[one] for one in drawn])
        value = objective(p, extended(chosen, size, length), length)
        rule = ALGORITHMS["greedy-multipath"]
        law_of_rounds = prefix_law(draft, target, iid_paths(count, length), rule)
        assert value == pytest.approx(law_of_rounds.block_efficiency, abs=1e-9)
        assert value <= multipath_optimum(draft, target, count, length) + 1e-4
        least = min(chosen[path] / p[path] for path in paths)
        # Eq. 24, whose term of the empty prefix is 1
        assert (length + 1) * least <= 1 + length * least <= value + 1e-12


@pytest.mark.parametrize(("size", "length", "count"), [(2, 2, 2), (2, 2, 3), (3, 1, 2)])
def test_the_best_selection_of_eq_21_reaches_the_multi_path_program(size, length, count):
    """Theorem 4.6: over all laws that Lemma 4.5 allows, against the LP of Theorem 4.3."""
    for seed in range(4):
        draft, target = random_pair(size, length + 1, np.random.default_rng(seed))
        p, q = law(target, length), law(draft, length)
        paths, nodes = list(product(range(size), repeat=length)), prefixes(size, length)
        # maximise sum of p(x) t(x), t(x) <= Q(x') / p(x') for the prefixes x' of x
        limits, right = [], []
        for at, x in enumerate(nodes):
            for depth in range(len(x) + 1):
                own = [float(path[:depth] == x[:depth]) for path in paths]
                limits.append(np.append(-np.array(own) / p[x[:depth]], np.eye(len(nodes))[at]))
                right.append(0.0)
        for some in antichains(paths):
            limits.append(np.append([path in some for path in paths], np.zeros(len(nodes))))
            right.append(1 - (1 - sum(q[x] for x in some)) ** count)
        reward = np.append(np.zeros(len(paths)), [p[x] for x in nodes])
        total = np.append(np.ones(len(paths)), np.zeros(len(nodes)))[None]
        found = scipy.optimize.linprog(-reward, np.array(limits), right, total, [1.0])
        best = multipath_optimum(draft, target, count, length)
        assert -found.fun == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("name", ["greedy-multipath", "two-slice", "k-seq", "traversal"])
@pytest.mark.parametrize(("size", "length", "count"), [(2, 2, 2), (2, 2, 3), (3, 1, 2)])
def test_node_budgets_of_valid_algorithms(name, size, length, count):
    """Theorem 4.3, whose halves are Lemmas A.2, A.3 and A.5: Eq. 14 to 17 hold.

    A(x) is the probability that at least x is accepted, from the law of rounds.
    """
    draft, target = random_pair(size, length + 1, np.random.default_rng(5))
    p, q = law(target, length), law(draft, length)
    budget, total = dict.fromkeys(prefixes(size, length), 0.0), 0.0
    target.start(())
    for tree, drawn in draft_trees(draft, iid_paths(count, length)):
        laws = target.distributions(tree, np.arange(len(tree)))

        def run(chooser, tree=tree, laws=laws):
            return ALGORITHMS[name].verify(tree, laws, chooser).node

        for node, chance in enumerate_choices(run):
            accepted = tuple(tree.path(node).tolist())
            total += drawn * chance * (len(accepted) + 1)
            for depth in range(len(accepted) + 1):
                budget[accepted[:depth]] += drawn * chance
    assert budget[()] == pytest.approx(1.0, abs=1e-12)
    for x in budget:
        if x:
            assert budget[x] <= budget[x[:-1]] * p[x] / p[x[:-1]] + 1e-12
    for some in antichains(prefixes(size, length)[1:]):
        bound = 1 - (1 - sum(q[x] for x in some)) ** count
        assert sum(budget[x] for x in some) <= bound + 1e-12
    assert sum(budget.values()) == pytest.approx(total, abs=1e-9)  # Eq. 13


@pytest.mark.parametrize(("size", "length"), [(2, 1), (2, 2), (3, 2), (2, 3)])
def test_block_reaches_the_program_of_one_path(size, length):
    """Theorem 3.4: no lossless rule on one path accepts more."""
    for seed in range(5):
        draft, target = random_pair(size, length + 1, np.random.default_rng(seed))
        block = prefix_law(draft, target, iid_paths(1, length), ALGORITHMS["block"])
        best = multipath_optimum(draft, target, 1, length)
        assert block.block_efficiency == pytest.approx(best, abs=1e-4)
