"""Loss and acceptance of lossy rules, as a table over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from otlp._solve import optimal_acceptance
from otlp.cli.output import console, note, show, table
from otlp.cli.own_rules import Measured, interval, synthetic_problem
from otlp.parallel.rows import CaptureRows
from otlp.studies.lossy_rules import LOSSY_RULES, kl_divergence, measure_loss
from otlp.studies.points import LOSSY


def measure_losses(
    source: CaptureRows, cut: dict[str, Any], progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure every lossy rule on every row with one draft; exact."""
    found = []
    for number, capture in source.part(0, len(source.numbers)):
        pair = capture.distributions(0, **cut)
        for name, rule in LOSSY_RULES.items():
            loss = measure_loss(rule, *pair)
            found.append({"row": number, "rule": name, **asdict(loss), "share": loss.share})
        progress(f"lossy rules, row {number}")
    return found


def print_losses(found: list[dict[str, Any]]) -> None:
    """Print the means over the rows, one line per rule."""
    made = table("lossy, n = 1", "TV", "KL, nats", "acceptance", "alpha* + TV", "of TV used")
    for name in LOSSY_RULES:
        rows = [one for one in found if one["rule"] == name]
        fields = ("total_variation", "kl", "acceptance", "bound", "lossless")
        lost, kl, accepted, bound, best = (np.mean([one[f] for one in rows]) for f in fields)
        used = f"{(accepted - best) / lost:.1%}" if lost > 0.0 else "-"
        made.add_row(name, f"{lost:.4f}", f"{kl:.3g}", f"{accepted:.4f}", f"{bound:.4f}", used)
    console.print()
    show(made)
    note(f"alpha* = {best:.4f}: lossless optimum. No rule accepts more than alpha* + TV.")


def measure_own_losses(
    rule: str,
    one: Measured,
    numbers: Sequence[int],
    best: Mapping[tuple[int, str, int], float | None],
) -> list[dict[str, Any]]:
    """Return the losses of a lossy rule of a file: on the synthetic problem, and on rows.

    The loss on the synthetic problem is exact if the audit is; the losses on rows are bounds.

    Parameters
    ----------
    rule : str
        FILE.py:FUNCTION.
    one : Measured
        Audit and sampled acceptance of the rule.
    numbers : sequence of int
        Row numbers.
    best : mapping
        alpha* by row, scheme and n; rows with None are skipped.
    """
    report, found = one.audited, one.found
    if report is None or not one.reason.startswith(LOSSY):
        return []
    problem = synthetic_problem(one.setting)
    scheme, n = one.setting.scheme, one.setting.n
    same = {"rule": rule, "scheme": scheme, "n": n}
    exact = report.test is None and not report.failures
    first = {
        "row": None,
        **same,
        "kl": kl_divergence(report.output, problem.target) if exact else None,
        **_bounded(
            optimal_acceptance(problem), report.interval, report.acceptance, report.acceptance_error
        ),
    }
    losses = [first]
    every = zip(numbers, found.lost, found.each, found.each_error, strict=True)
    for row, lost, accepted, error in every:
        if (most := best[row, scheme, n]) is not None:
            bounds = _bounded(most, tuple(lost), accepted, error)
            losses.append({"row": row, **same, "kl": None, **bounds})
    return losses


def _bounded(
    best: float, lost: tuple[float, float], accepted: float, error: float
) -> dict[str, Any]:
    """Return a loss with intervals; alpha* + TV uses the upper bound of TV."""
    low, high = map(float, lost)
    return {
        "total_variation_interval": (low, high),
        "acceptance": float(accepted),
        "acceptance_interval": interval(accepted, error),
        "bound": best + high,
        "lossless": best,
    }


def print_own_losses(found: list[dict[str, Any]]) -> None:
    """Print the loss of each rule on the synthetic problem, and the means over the rows."""
    if not found:
        return
    heads = "TV", "KL, nats", "acceptance", "alpha* + TV", "of TV used"
    made = table("your own, lossy", "scheme", "n", "on", *heads)
    for key in dict.fromkeys((one["rule"], one["scheme"], one["n"]) for one in found):
        same = [one for one in found if (one["rule"], one["scheme"], one["n"]) == key]
        for where, rows in (("synthetic", same[:1]), ("the rows", same[1:])):
            if not rows:
                continue
            low, high = np.mean([one["total_variation_interval"] for one in rows], axis=0)
            least, _ = np.mean([one["acceptance_interval"] for one in rows], axis=0)
            accepted, bound, best = (
                np.mean([one[name] for one in rows]) for name in ("acceptance", "bound", "lossless")
            )
            kl, exact = rows[0]["kl"], high - low < 1e-6
            used = "-"
            if exact and high > 1e-9:
                used = f"{(accepted - best) / high:.1%}"
            elif least > best:
                used = f"{(least - best) / high:.0%} or more"
            made.add_row(
                *map(str, key),
                where,
                f"{high:.4f}" if exact else f"{low:.3f} to {high:.3f}",
                "-" if kl is None else f"{kl:.3g}",
                f"{accepted:.4f}",
                f"{bound:.4f}",
                used,
            )
    console.print()
    show(made)
    note("On the rows, TV is sampled, with 95% bounds; alpha* + TV uses the upper bound.")
