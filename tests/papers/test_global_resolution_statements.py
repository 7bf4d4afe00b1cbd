"""Global Resolution: statements on sets, networks and convex functions, without library code.

The reductions of the library are also tested elsewhere.
"""

from itertools import chain, combinations, product

import numpy as np
import pytest
import scipy

import otlp


def subsets(size):
    return chain.from_iterable(combinations(range(size), k) for k in range(size + 1))


def test_theorem_3_1_by_listing_all_subsets():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, *qs = rng.dirichlet(np.full(5, 0.4), 3)
        for scheme in (otlp.IID(qs[0], 3), otlp.Independent(qs), otlp.WithoutReplacement(qs[0], 2)):
            problem = otlp.Problem(p, scheme)
            tuples = scheme.enumerate_tuples()
            psi = [
                p[list(some)].sum() - tuples.mass[np.isin(tuples.tokens, some).all(axis=1)].sum()
                for some in subsets(5)
            ]
            assert otlp.optimal_acceptance(problem) == pytest.approx(1 + min(psi), abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_theorem_c_1_psi_is_submodular_for_independent_drafts(n):
    rng = np.random.default_rng(n)
    for _ in range(4):
        p, *qs = rng.dirichlet(np.full(4, 0.5), n + 1)

        def psi(some, p=p, qs=qs):
            some = sorted(some)
            return p[some].sum() - np.prod([q[some].sum() for q in qs])

        sets = [set(some) for some in subsets(4)]
        for a, b in product(sets, sets):
            assert psi(a & b) + psi(a | b) <= psi(a) + psi(b) + 1e-12


def graphs(count):
    """Bipartite graphs without isolated vertices, and masses on both sides."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        edges = rng.random((4, 5)) < 0.5
        edges[np.arange(4), rng.integers(5, size=4)] = True
        edges[rng.integers(4, size=5), np.arange(5)] = True
        if rng.random() < 0.5:
            flow = np.where(edges, rng.dirichlet(np.full(20, 0.3)).reshape(4, 5), 0.0)
            x, y = flow.sum(axis=1), flow.sum(axis=0)
        else:
            x, y = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(5))
        yield edges, x, y * rng.choice([1.0, 1.3])


def transport(edges, x, y):
    """Return the maximum flow, and whether x can be met: condition (1) of Lemma F.1."""
    pairs = np.argwhere(edges)
    rows = np.array([pairs[:, 0] == a for a in range(4)], dtype=float)
    columns = np.array([pairs[:, 1] == b for b in range(5)], dtype=float)
    most = scipy.optimize.linprog(-np.ones(len(pairs)), np.vstack((rows, columns)), np.append(x, y))
    met = scipy.optimize.linprog(np.zeros(len(pairs)), columns, y + 1e-10, rows, x)
    return -most.fun, met.success


def test_lemmas_f_1_and_g_1():
    """A maximal flow fills every x if and only if the inequalities of Hall hold, Eq. 46."""
    answers = set()
    for edges, x, y in graphs(25):
        slack = min(
            y[edges[list(some)].any(axis=0)].sum() - x[list(some)].sum() for some in subsets(4)
        )
        flow, met = transport(edges, x, y)
        answers.add(met)
        assert met == (slack >= -1e-9)
        assert (flow >= x.sum() - 1e-8) == met
    assert answers == {True, False}


@pytest.mark.parametrize("waste", [0.0, 1.0])
def test_lemmas_i_1_and_j_1(waste):
    """Phi (64) and Theta (93) are convex and at least 0, and their gradients approach 0."""
    rng = np.random.default_rng(2)
    for edges, x, y in graphs(12):
        if not transport(edges, x, y)[1] or (waste == 0.0) != np.isclose(y.sum(), x.sum()):
            continue

        def value(alpha, edges=edges, x=x, y=y):
            weights = np.where(edges, np.exp(alpha)[:, None], 0.0).sum(axis=0)
            return y @ np.log(waste + weights) - x @ alpha

        def gradient(alpha, edges=edges, x=x, y=y):
            weights = np.where(edges, np.exp(alpha)[:, None], 0.0)
            return weights @ (y / (waste + weights.sum(axis=0))) - x

        for _ in range(20):
            a, b = rng.normal(scale=3.0, size=(2, 4))
            assert value(a) >= -1e-12
            assert value((a + b) / 2) <= (value(a) + value(b)) / 2 + 1e-12
        found = scipy.optimize.minimize(value, np.zeros(4), jac=gradient, method="BFGS")
        assert np.abs(gradient(found.x)).sum() < 1e-3
