"""HTML representation of results: a small table, and a bar of acceptance and bound."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def html_table(title: str, entries: Mapping[str, object]) -> str:
    """Return a table with two columns, names and values.

    Parameters
    ----------
    title : str
        Caption of the table.
    entries : mapping of str to object
        Values by name, converted with `str`.

    Returns
    -------
    str
        HTML; all text is escaped.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in entries.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def html_bar(acceptance: float, bound: float) -> str:
    """Draw the acceptance as a bar from 0 to 1, and the bound as a line across the bar.

    Parameters
    ----------
    acceptance, bound : float
        Values from 0 to 1; NaN if unknown, then not drawn.

    Returns
    -------
    str
        SVG with a text alternative.
    """
    words = f"acceptance {acceptance:.4f}" if acceptance == acceptance else "acceptance unknown"
    if bound == bound:
        words += f", at most {bound:.4f}"
    parts = ["<rect width='240' height='12' fill='#8884'/>"]
    if acceptance == acceptance:
        parts.append(f"<rect width='{240 * min(acceptance, 1.0):.1f}' height='12' fill='#0072b2'/>")
    if bound == bound:
        parts.append(f"<rect x='{240 * bound - 1:.1f}' width='2' height='16' fill='#d55e00'/>")
    return (
        f"<svg role='img' aria-label='{words}' width='242' height='16'>"
        f"<title>{words}</title>{''.join(parts)}</svg>"
    )
