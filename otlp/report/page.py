"""The HTML page of a report, without scripts or links to other files; all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from itertools import count
from string import Template

from otlp import __version__
from otlp.errors import clean
from otlp.report.sections import SECTIONS, Exhibit

HEAD = 'th scope="col"'
NUMBER = re.compile(r"(-?[\d.,]+%?(\s±[\d.]+)?(\s[\d.]+%)?|-)?")


def write_page(
    names: Sequence[str],
    answers: Sequence[Sequence[str]],
    contrast: Sequence[str],
    exhibits: Sequence[Sequence[Sequence[Exhibit]]],
) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    names : sequence of str
        Name of each pair of models.
    answers : sequence of sequence of str
        Sentences of the first screen for each pair.
    contrast : sequence of str
        Sentences that compare two pairs.
    exhibits : sequence
        Output of `otlp.report.sections.sections` for each pair.
    """
    template = (resources.files("otlp.report") / "page.html").read_text(encoding="utf-8")
    numbers = count(1)
    lists = [
        f'<ul class="answer">\n{"".join(f"<li>{text(one)}</li>" for one in sentences)}</ul>\n'
        for sentences in answers
    ]
    parts = [_columns(names, lists, "h2")]
    for number, heading in enumerate(SECTIONS):
        columns = [
            "".join(part for one in pair[number] for part in _exhibit(one, numbers))
            for pair in exhibits
        ]
        parts.append(f"<h2>{number + 1}. {heading}</h2>\n{_columns(names, columns)}")
    return Template(template).substitute(
        title=text(" and ".join(names)),
        version=__version__,
        contrast="".join(f"<p>{text(one)}</p>" for one in contrast),
        parts="".join(parts),
    )


def text(words: str) -> str:
    """Escape words for HTML; control characters become visible, as on a terminal."""
    return escape(clean(words))


def _columns(names: Sequence[str], columns: Sequence[str], head: str = "h3") -> str:
    """Return one column per pair, with a heading if there are two pairs."""
    headed = (
        f"<section>\n{f'<{head}>{text(name)}</{head}>' if len(names) > 1 else ''}\n{column}"
        "</section>\n"
        for name, column in zip(names, columns, strict=True)
    )
    return f'<div class="pairs">\n{"".join(headed)}</div>\n'


def _exhibit(one: Exhibit, numbers: Iterator[int]) -> Iterator[str]:
    if one.sentence:
        yield f"<p>{text(one.sentence)}</p>\n"
    if one.result.figure:
        drawn = inline(one.result.figure, f"f{next(numbers)}", one.alt)
        yield f'<figure class="scroll" tabindex="0">{drawn}</figure>\n'
    for block in one.result.printed:
        if isinstance(block, str):
            yield f'<p class="soft">{text(block)}</p>\n'
        else:
            yield _table(block, next(numbers))
    if one.result.command:
        yield f"<pre><code>{text(one.result.command)}</code></pre>\n"


def _table(block: Sequence[Sequence[str]], number: int) -> str:
    """Return a table that scrolls if wider than the page and can be focused by keyboard."""
    columns = list(zip(*block[1:], strict=True)) or [()] * len(block[0])
    kinds = [' class="number"' if all(map(NUMBER.fullmatch, one)) else "" for one in columns]

    def line(cells: Sequence[str], tag: str) -> str:
        tags = [tag if one else "td" for one in cells]  # An empty header cell is a plain cell.
        made = (
            f"<{tag}{kind}>{text(one)}</{tag[:2]}>"
            for tag, one, kind in zip(tags, cells, kinds, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>\n"

    head = f"<thead>{line(block[0], HEAD)}</thead>\n" if any(block[0]) else ""
    body = "".join(line(row, "td") for row in block[1:])
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Table {number}">\n<table>\n'
        f"{head}<tbody>\n{body}</tbody>\n</table>\n</div>\n"
    )


def inline(svg: str, prefix: str, alt: str) -> str:
    """Convert an SVG figure of matplotlib for inclusion in a page.

    The page sets size and background.  Every id gets `prefix`, so that ids of two figures differ.
    `alt` is the text alternative.
    """
    body = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    opening, _, rest = body.partition(">")
    points = float(opening.partition('viewBox="0 0 ')[2].partition(" ")[0])
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    rest = re.sub(  # Change tags only, not the text between tags.
        r"<[^>]+>", lambda tag: re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", tag[0]), rest
    )
    # The first white fill is the figure's background.
    rest = rest.replace("fill: #ffffff", "fill: none", 1)
    # Keep the figure's 8 pt text no larger than the text of the page and not much smaller.
    size = f"max-width: {1.75 * points:.0f}px; min-width: {0.85 * points:.0f}px"
    label = f'role="img" aria-label="{text(alt)}" style="{size}"'
    return f"{opening} {label}><title>{text(alt)}</title>{rest}"
