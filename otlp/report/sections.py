"""The six sections of a report: a sentence, a figure, the printed tables and the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from otlp.report import sentences as say
from otlp.report.results import Acceptances, Result, as_estimate, shifted
from otlp.studies.compare import OPTIMUM
from otlp.studies.estimate import Estimate

SECTIONS = {
    "How good the draft is": ("overlap",),
    "One place: acceptance by rule": ("one_place",),
    "As served": ("as_served", "whole_draft"),
    "A round: tokens a target call": ("round",),
    "What verification costs, and when drafting pays": ("verification", "decoding"),
    "What this page does not say": (),
}
"""Titles, and the results that each section shows."""

ALT = {
    "overlap": "Mean overlap by target entropy, position and passage",
    "one_place": "Mean acceptance by rule over n, and its distance from the optimum",
    "as_served": "The same as served, target and draft cut alike",
    "whole_draft": "The same as served, the draft not cut",
    "round": "Tokens a target call over the budget of nodes, a line a family, with standard errors",
    "verification": "Median time of plan and certificate over n, a line a rule",
}
"""What figures show, for who cannot see them."""

LIMITS = (
    "Intervals are 95% intervals over the passages of the capture, not over its tokens. They hold "
    "for text of the same kind as these passages.",
    "Sections 1 to 3 are about single places: the acceptance of the next token, averaged over the "
    "text that the target wrote.",
    "Section 4 is an experiment of the laboratory. It predicts tokens a call along text that the "
    "target wrote, without decoding, and chooses trees on the texts that it values them on.",
    "If a capture stores the most likely tokens of a row only, drafts are limited to these. The "
    "notes of sections 2 and 3 say by how much the optimum over all tokens could be higher.",
    "Times are those of this machine.",
)


NOTHING = Result("")


@dataclass(frozen=True)
class Exhibit:
    """A part of a section.

    Attributes
    ----------
    sentence : str
        What to see; empty if there is nothing to say.
    result : Result
    alt : str
        What the figure shows.
    """

    sentence: str
    result: Result = NOTHING
    alt: str = ""


def sections(
    found: Mapping[str, Result], costs: tuple[float | None, float | None] = (None, None)
) -> list[list[Exhibit]]:
    """Build the exhibits of each of `SECTIONS` for one pair.

    Parameters
    ----------
    found : mapping of str to Result
    costs : (float or None, float or None)
        A draft call, and each drafted token of a target call, in target calls.
    """
    made = [
        [_exhibit(name, found[name]) for name in names if name in found]
        for names in SECTIONS.values()
    ]
    made[4].append(_break_even(found, costs))
    about = found["overlap"].content or {"row_choice": "none", "source": "unknown"}
    rows = f"The rows: {about['row_choice']}; {about['source']}."
    made[5] += [Exhibit(line) for line in (rows, *LIMITS)]
    return made


def _exhibit(name: str, found: Result) -> Exhibit:
    if not found:
        return Exhibit(f"Left out: {found.reason}.", found)
    see = SEE.get(name, _against_rejection)
    return Exhibit(see(found), found, f"{ALT.get(name, '')}; the table has the numbers.")


def _by_entropy(found: Result) -> str:
    groups = [one for one in found.content["overlap"] if one["by"] == "target entropy"]
    said = "The overlap is the sum of min(p, q) over the tokens, at temperature 1."
    if len(groups) < 2:
        return said
    most, least = (say.percent(as_estimate(groups[at]["overlap"])) for at in (0, -1))
    return f"{said} It is {most} where the target is most certain, {least} where it is least."


def _against_rejection(found: Result) -> str:
    most = max(point["n"] for point in found.content["points"])
    gap = Acceptances(found.content).above_optimum("recursive-rejection", most)
    cut = ", the draft not cut" if found.content["whole_draft"] else ""
    return (
        f"At {say.served_as(found.content)}{cut}, and n = {most}, recursive rejection keeps "
        f"{say.versus(gap, 'the best rule')}."
    )


def _choice(found: Result) -> str:
    best = say.designs_of(found)[0]
    return f"Within {say.NODES} nodes: {say.shape_of(best)}, verified by {best['verification']}."


SEE: dict[str, Callable[[Result], str]] = {
    "overlap": _by_entropy,
    "round": _choice,
    "verification": lambda _: (
        "The best rule is martingale. Decoding needs its plan alone; the certificate is the proof."
    ),
    "decoding": lambda found: f"The fastest is {say.fastest(found.content)['algorithm']}.",
}
"""What to see in a result; sweeps have one sentence of their own."""


def _draft_call(one: Mapping[str, Any]) -> float:
    """A draft call in target calls, as decoding measured it."""
    share = one["time_shares"]
    return float(share["draft"] / one["draft_calls"] / (share["target"] / one["target_calls"]))


def break_even(
    found: Mapping[str, Result], costs: tuple[float | None, float | None] = (None, None)
) -> list[dict[str, Any]]:
    """Compute from which cost of a draft call on drafting pays, for each way to draft.

    Returns
    -------
    list of dict
        ``drafts``, ``tokens_per_call`` as mean, low and high, ``draft_calls``, ``pays_below`` in
        target calls, and ``draft_cost`` and ``speed``, None if the cost of a draft call is unknown.
    """
    draft, node = costs[0], costs[1] or 0.0
    if draft is None and found.get("decoding"):
        draft = _draft_call(say.fastest(found["decoding"].content))
    ways: list[tuple[str, Estimate, int, float]] = []
    for point in found["one_place"].content.get("points", ()):
        if point["rule"] == OPTIMUM and point["acceptance"][0] is not None:
            more = shifted(as_estimate(point["acceptance"]), 1.0)
            ways.append((f"{point['n']} at one place", more, 1, point["n"]))
    for budget in found["round"].content.get("budgets", ()):
        best = budget["designs"][0]
        tokens = say.tokens_a_call(best, found["round"].content["text_count"])
        name = f"N = {budget['nodes']}: {say.shape_of(best)}"
        ways.append((name, tokens, best["depth"], best["nodes"]))
    return [
        {
            "drafts": name,
            "tokens_per_call": tokens.record(),
            "draft_calls": calls,
            "pays_below": max(tokens.mean - 1.0 - node * nodes, 0.0) / calls,
            "draft_cost": draft,
            "speed": None if draft is None else tokens.mean / (1.0 + node * nodes + draft * calls),
        }
        for name, tokens, calls, nodes in ways
    ]


def _break_even(found: Mapping[str, Result], costs: tuple[float | None, float | None]) -> Exhibit:
    rows = [["drafts", "tokens a target call", "draft calls", "pays below", "times as fast"]]
    cost = None
    for one in break_even(found, costs):
        cost, tokens = one["draft_cost"], as_estimate(one["tokens_per_call"]).show(2)
        rate = "-" if cost is None else f"{one['speed']:.2f}"
        row = [one["drafts"], tokens, str(one["draft_calls"]), f"{one['pays_below']:.3f}", rate]
        rows.append(row)
    said = (
        "Drafting pays while a draft call costs less, in target calls, than the column 'pays below'"
        f" says. Here a drafted token adds {costs[1] or 0.0:g} to a target call, and verification "
        "takes no time. The cost of a draft call is "
        + ("not known." if cost is None else f"{cost:.3g} in the last column.")
    )
    return Exhibit(said, Result("", {"rows": rows}, printed=[rows]))
