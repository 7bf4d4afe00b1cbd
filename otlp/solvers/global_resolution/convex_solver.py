"""Minimisation of the convex functions of the two systems to a small L1 norm of the gradient.

There are two minimisers: damped Newton steps, and SciPy's L-BFGS-B, as in the paper.  The Hessian
is small and dense.  If the minimum is at infinity (a tight constraint of the system), a Newton step
still divides the gradient by about e, but L-BFGS-B converges slowly.  L-BFGS-B is used after the
Newton steps stall.

The matrices are far too small for threads.  If several processes share the cores, set
OPENBLAS_NUM_THREADS=1; otherwise each step of SciPy's minimiser may wait for 10 ms.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from otlp.distribution import FloatArray
from otlp.numerics.compiled import compiled
from otlp.numerics.power_slope import power_slope
from otlp.numerics.ratio_bins import power
from otlp.solvers.global_resolution.logsumexp_integral import LogSumExpIntegral
from otlp.solvers.global_resolution.logsumexp_terms import LogSumExp
from otlp.timing import loaded

ConvexFunction = LogSumExp | LogSumExpIntegral

# Largest change of a variable in one Newton step; beyond it the softmax is saturated.
LONGEST_STEP = 4.0

# Fixed-point iterations of the initial guess, and cap on the total weight of the other tokens.  If
# the system is infeasible, the weights would otherwise grow until Newton steps have no effect.
START_ITERATIONS, WEIGHT_CAP = 8, 30.0


class _ConvergedError(Exception):
    """Raised to leave L-BFGS-B when the gradient is within the tolerance."""


class Minimum:
    """The best point found: the evaluated point with the smallest gradient.

    Attributes
    ----------
    alpha, given : ndarray, shape (G,)
        Variables, and mass that each variable has at this point.
    gradient_norm : float
        L1 norm of the gradient at this point.
    iterations : int
        Number of iterations of L-BFGS-B.
    newton_steps : int
        Number of Newton steps.
    """

    def __init__(self, function: ConvexFunction, tolerance: float, alpha: FloatArray) -> None:
        self.function, self.tolerance, self.alpha = function, tolerance, alpha
        self.value, self.given = function.evaluate(alpha)
        norm = l1_norm(self.given - function.wanted)
        self.gradient_norm = norm if norm == norm else np.inf
        self.iterations = self.newton_steps = 0

    def __call__(self, alpha: FloatArray) -> tuple[float, FloatArray]:
        """Evaluate a point; return the value and the gradient."""
        value, given = self.function.evaluate(alpha)
        gradient = given - self.function.wanted
        norm = l1_norm(gradient)
        if norm < self.gradient_norm:
            self.alpha, self.given, self.gradient_norm = alpha.copy(), given, norm
        if norm <= self.tolerance:
            raise _ConvergedError
        return value, gradient


@compiled
def starting_point(
    wanted: FloatArray, draft: FloatArray, n: int, slack: float, ignored: float
) -> FloatArray:
    """Compute a mean-field initial guess, with the average weight of the other tokens in a tuple.

    Parameters
    ----------
    wanted, draft : ndarray, shape (G,)
        w and q, positive.
    n : int
        Number of drafts.
    slack : float
        0 or 1.  With 1, the guess includes the weights of the other tokens; on language-like
        problems this saves two of three Newton steps, and a single variable needs none.
    ignored : float
        Probability of the tokens without a variable that a tuple may contain.
    """
    every = ignored
    for j in range(draft.size):
        every += draft[j]
    odds, others, weight = np.empty(draft.size), np.empty(draft.size), np.empty(draft.size)
    for j in range(draft.size):
        rest = max(every - draft[j], 0.0)
        drafted = max(draft[j] * power_slope(rest, every, n), 5e-324)
        share = min(max(wanted[j] / drafted, 1e-6), 0.99)
        odds[j] = weight[j] = share / (1.0 - share)
        others[j] = 1.0 - power(rest / every, n - 1)
    if slack > 0.0:
        for _ in range(START_ITERATIONS):
            total = 0.0
            for j in range(draft.size):
                total += others[j] * weight[j]
            for j in range(draft.size):
                weight[j] = odds[j] * (
                    slack + min(max(total - others[j] * weight[j], 0.0), WEIGHT_CAP)
                )
    for j in range(draft.size):
        weight[j] = np.log(weight[j])
    return weight


def solve_convex(
    function: ConvexFunction,
    start: FloatArray,
    tolerance: float,
    max_iterations: int = 25,
    newton_steps: int = 50,
) -> Minimum:
    """Find a point where the L1 norm of the gradient is at most `tolerance`, or the best point.

    Parameters
    ----------
    function : LogSumExp or LogSumExpIntegral
    start : ndarray, shape (G,)
    tolerance : float
        L1 norm of the gradient to reach.
    max_iterations : int
        Maximum number of iterations of L-BFGS-B, which starts from the best point of the Newton
        steps if this point is not within the tolerance; 0 disables L-BFGS-B.
    newton_steps : int
        Maximum number of Newton steps; 0 disables them.

    Returns
    -------
    Minimum
        The best point; its `gradient_norm` may exceed the tolerance.

    Notes
    -----
    An iteration of L-BFGS-B costs about one gradient, a Newton step one Hessian and O(G^3).
    """
    best = Minimum(function, tolerance, start)
    with suppress(_ConvergedError):
        if newton_steps and best.gradient_norm > tolerance:
            _newton(best, newton_steps)
        if max_iterations and best.gradient_norm > tolerance:
            _lbfgsb(best, max_iterations)
    return best


def _lbfgsb(best: Minimum, limit: int) -> None:
    def count(_: FloatArray) -> None:
        best.iterations += 1

    options = {"maxiter": limit, "maxfun": 20 * limit, "ftol": 0.0, "gtol": 0.0}
    loaded("scipy.optimize").minimize(
        best, best.alpha, jac=True, method="L-BFGS-B", callback=count, options=options
    )


def _newton(best: Minimum, limit: int) -> None:
    """Take damped Newton steps from the starting point, as long as they make progress."""
    point, value, gradient = best.alpha, best.value, best.given - best.function.wanted
    while best.newton_steps < limit:
        best.newton_steps += 1
        hessian = best.function.hessian(point)
        if not _regularised(hessian, best.function.slack):
            return
        # Call LAPACK directly: the checks of scipy.linalg.solve take longer than the solution.
        dposv = loaded("scipy.linalg.lapack").dposv
        _, step, failed = dposv(hessian, -gradient, overwrite_a=True)
        if failed:
            return
        longest = max(map(abs, step.tolist()), default=0.0)
        step *= min(1.0, LONGEST_STEP / max(longest, 1e-300))
        slope, norm, length = float(gradient @ step), l1_norm(gradient), 1.0
        while length > 1e-4:
            trial = point + length * step
            new_value, new_gradient = best(trial)
            lower = new_value <= value + 1e-4 * length * slope
            if lower or l1_norm(new_gradient) < 0.9 * norm:
                break
            length *= 0.5
        else:
            return
        point, value, gradient = trial, new_value, new_gradient


@compiled
def _regularised(hessian: FloatArray, slack: float) -> bool:
    """Make the Hessian positive definite in place; return False if its diagonal is 0."""
    size, scale = len(hessian), 0.0
    for i in range(size):
        scale = max(scale, hessian[i, i])
    # Adding a constant to all variables does not change the function; fill this null direction.
    fill = scale / size if slack == 0.0 else 0.0
    for i in range(size):
        for j in range(size):
            hessian[i, j] += fill
        hessian[i, i] += 1e-13 * scale
    return scale > 0.0


def l1_norm(vector: FloatArray) -> float:
    """Return the sum of the absolute values."""
    return float(np.abs(vector).sum())
