"""How a notebook shows a result: a small table, and a bar of the acceptance against its bound."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def html_table(title: str, entries: Mapping[str, object]) -> str:
    """Write a table of two columns, a name and what is said of it.

    Parameters
    ----------
    title : str
        What stands above it.
    entries : mapping of str to object
        Shown as `str` shows them.

    Returns
    -------
    str
        HTML; whatever was given is escaped.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(said))}</td></tr>"
        for name, said in entries.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def html_bar(acceptance: float, bound: float) -> str:
    """Draw the acceptance as a bar from 0 to 1, and the bound as a line across it.

    Parameters
    ----------
    acceptance, bound : float
        NaN where they are unknown: then there is no such part.

    Returns
    -------
    str
        SVG with its own text for who cannot see it.
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
