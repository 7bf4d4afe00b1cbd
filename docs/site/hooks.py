"""MkDocs hooks of the documentation site.

Formulas become MathML, and interpreter sessions are copied without prompts and outputs.  Scripts of
the gallery become notebooks, and files at the top of the checkout become pages.  The help of the
command line and the fields of its JSON are appended to their pages.  Links out of `docs/` point to
the corresponding pages.
"""

from __future__ import annotations

import ast
import doctest
import html
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from textwrap import indent
from typing import Any
from xml.etree import ElementTree

import click
from latex2mathml.converter import convert
from markdown.extensions.toc import slugify
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))
TOP = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
TOP |= {"SECURITY.md": "security.md"}
PAGES = {"README.md": "index.md", "otlp/errors.py": "reference/errors.md"} | TOP
"""Pages of files outside `docs/`."""

SCRIPT = re.compile(r"^\[[^]]*\]\(([a-z_]+\.py)\)$", re.MULTILINE)
"""A line that is a link to a script in the page's folder; the site shows the script instead."""

LINK = re.compile(r"\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")
MATHML = "{http://www.w3.org/1998/Math/MathML}"
ElementTree.register_namespace("", MATHML[1:-1])
SPACES = {"quad": "&emsp; ", "qquad": "&emsp;&emsp; ", "allowbreak": " "}
"""Positions where a displayed formula may break, with their HTML spaces."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


CODE = re.compile(r"<pre><span></span><code>(.*?)</code></pre>", re.DOTALL)
"""A highlighted block of code."""


def on_config(config: Any) -> Any:
    """Remove missing pages from the navigation; show the version switch only with versions."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    made = set(TOP.values())
    docs = Path(config.docs_dir)
    config.nav = [
        _present(entry, lambda page: page in made or (docs / page).exists()) for entry in config.nav
    ]
    return config


def _present(entry: Any, exists: Callable[[str], bool]) -> Any:
    """Return an entry of the navigation without missing pages."""
    title, below = next(iter(entry.items()))
    if isinstance(below, str):
        return entry
    return {
        title: [
            one
            for one in below
            if exists(one if isinstance(one, str) else next(iter(one.values())))
        ]
    }


def on_files(files: Files, config: Any) -> Files:
    """Generate pages from files at the top of the checkout, and notebooks from the gallery."""
    for script in GALLERY:
        page = f"gallery/{script.stem}.ipynb"
        files.append(File.generated(config, page, content=notebook(script)))
    for source, page in TOP.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, EXAMPLE, content=example()))
    return files


def notebook(script: Path) -> str:
    """Return a script as a notebook with its docstring, code and figure."""
    text = script.read_text(encoding="utf-8")
    intro = ast.get_docstring(ast.parse(text)) or ""
    code = text.partition('"""\n')[2].strip()
    cells = [
        ("markdown", f'{intro}\n\nIn an environment with otlp: `pip install -e ".[plot]"`.'),
        ("code", code),
        ("code", f'from IPython.display import SVG\n\nSVG("{script.stem}.svg")'),
    ]
    empty = {"code": {"execution_count": None, "outputs": []}, "markdown": {}}
    return json.dumps({
        "cells": [
            {"cell_type": kind, "id": f"{script.stem}-{at}", "metadata": {}, **empty[kind],
             "source": source}
            for at, (kind, source) in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python",
                                    "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    })  # fmt: skip


def thumbnails(page: str) -> str:
    """Return a grid of the gallery's figures with links to their sections, in the page's order."""
    found = re.findall(r"^## ([^\n]+)$.*?\]\((\w+\.svg)\)$", page, re.MULTILINE | re.DOTALL)
    links = [
        f'<a href="#{slugify(title, "-")}"><img src="{figure}" alt="" loading="lazy">{title}</a>'
        for title, figure in found
    ]
    return f'<div class="thumbnails">{"".join(links)}</div>\n\n'


def command_line() -> str:
    """Return the help of all commands."""
    os.environ["COLUMNS"] = "88"
    from otlp.cli import main

    return "".join(_helps(main, click.Context(main, info_name="otlp")))


def _helps(group: Any, around: click.Context) -> Iterator[str]:
    for name in group.list_commands(around):
        command = group.get_command(around, name)
        context = click.Context(command, parent=around, info_name=name, terminal_width=88)
        yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
        if isinstance(command, click.Group):
            yield from _helps(command, context)


def json_fields() -> str:
    """Return the JSON fields of all commands from the schema."""
    schema = json.loads((ROOT / "docs" / "schemas" / "otlp.json").read_text(encoding="utf-8"))
    parts = []
    for name, part in schema["$defs"].items():
        title = f"otlp {name} --json" if "command" in part.get("properties", {}) else name
        parts.append(f"\n## {title}\n\n{part['description']}\n")
        if rows := list(_fields(part, "")):
            parts.append("\n| field | type | meaning |\n|---|---|---|\n" + "".join(rows))
    return "".join(parts)


def _fields(part: Any, before: str) -> Iterator[str]:
    """Yield a table row for each field, including the fields of objects in lists."""
    for name, field in part.get("properties", {}).items():
        if before or name not in ("command", "format", "otlp"):
            kind, meaning = _kind(field), field.get("description", "")
            yield f"| `{before}{name}` | {kind} | {meaning} |\n"
            yield from _fields(field.get("items", {}), f"{before}{name}[].")


def _kind(field: Any) -> str:
    if "anyOf" in field:
        return " or ".join(map(_kind, field["anyOf"]))
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    kinds = field.get("type", "string")
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)


EXAMPLE = "report_example.html"
"""Name of the generated example report."""


def live_report() -> str:
    """Return a section with a link to the example report."""
    return f"\n## A live example\n\n[A report of 40 rows of the built-in capture]({EXAMPLE})\n"


def example() -> str:
    """Return the example report, which is cached until a file of the code changes."""
    stamp = sha256()
    for path in sorted((ROOT / "otlp").rglob("*")):
        if path.suffix in (".py", ".css"):
            stamp.update(path.read_bytes())
    made = ROOT / "build" / f"report_{stamp.hexdigest()[:16]}.html"
    if not made.exists():
        words = ["-m", "otlp", "report", "--rows", "40", "--output", str(made)]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    return made.read_text(encoding="utf-8")


GENERATED = {
    "reference/command_line.md": command_line,
    "reference/json.md": json_fields,
    "report.md": live_report,
}
"""Functions that generate text at the end of a page."""


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Append generated text, redirect links out of `docs/`, show scripts, and mark sessions."""
    folder = Path(page.file.src_uri).parent

    def to_page(found: re.Match[str]) -> str:
        target = os.path.normpath(Path("docs") / folder / found[1])
        if target not in PAGES:
            return found[0]
        return f"]({os.path.relpath(PAGES[target], folder)}{found[2] or ''})"

    if page.file.src_uri == "changelog.md":
        page.meta["search"] = {"boost": 0.1}  # the changelog matches almost every search
    if page.file.src_uri in GENERATED:
        markdown += GENERATED[page.file.src_uri]()

    def to_source(found: re.Match[str]) -> str:
        source = (ROOT / "docs" / folder / found[1]).read_text(encoding="utf-8")
        shown = indent(f"```python\n{source}```", "    ")
        link = f"[as a notebook]({Path(found[1]).stem}.ipynb){{ download }}"
        return f'??? example "{found[1]}"\n\n{shown}\n\n{link}'

    if page.file.src_uri == "gallery/index.md":
        at = markdown.index("## ")
        markdown = markdown[:at] + thumbnails(markdown) + markdown[at:]
    markdown = SCRIPT.sub(to_source, markdown)
    return LINK.sub(to_page, markdown).replace("```python\n>>>", "```pycon\n>>>")


def on_page_content(content: str, **_: Any) -> str:
    """Convert TeX formulas to MathML, which needs no script, and set the copy text of sessions."""
    content = CODE.sub(with_copy, content).replace(" ±", "&nbsp;±")
    return FORMULA.sub(lambda found: typeset(found[3], found[2] == "("), content)


def with_copy(found: re.Match[str]) -> str:
    """Return a block of code; for a session the copy button copies only the input."""
    if 'class="gp"' not in found[1]:
        return found[0]
    shown = html.unescape(re.sub(r"<[^>]+>", "", found[1]))
    return found[0].replace("<pre>", f'<pre data-copy="{html.escape(typed(shown))}">', 1)


def typed(session: str) -> str:
    """Return the input of a session without prompts and outputs, with an empty line per block."""
    lines = []
    for example in doctest.DocTestParser().get_examples(session):
        several = example.source.count("\n") > 1
        lines += [line for line in example.source.splitlines() if line.strip() or not several]
        lines += [""] * several
    return "\n".join(lines).rstrip() + "\n" * (1 + bool(lines and not lines[-1]))


def typeset(formula: str, inline: bool) -> str:
    """Convert a TeX formula to MathML; a displayed formula may break between its parts."""
    formula = re.sub(r"\\tag\{(\d+)\}", r"\\qquad (\1)", html.unescape(formula))
    if inline:
        return mathml(formula, inline)
    parts = re.split(r"\\(q?quad|allowbreak)\b", formula)
    shown = "".join(SPACES.get(part) or mathml(part, inline) for part in parts)
    return f'<div class="formula">{shown}</div>'


def mathml(formula: str, inline: bool) -> str:
    """Convert a TeX formula without line breaks to MathML."""
    display = "inline" if inline else "block"
    math = ElementTree.fromstring(convert(formula, display=display))
    for node in math.iter():
        if node.attrib.pop("mathvariant", "") == "script":  # no longer supported by browsers
            node.text = unicodedata.lookup(f"MATHEMATICAL SCRIPT CAPITAL {node.text}")
        if not inline and node.tag == f"{MATHML}msub" and node[0].text in ("max", "min"):
            node.tag = f"{MATHML}munder"
    return ElementTree.tostring(math, encoding="unicode")
