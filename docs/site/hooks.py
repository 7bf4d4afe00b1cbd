"""What the site does to the pages beside rendering them.

Pages read well on a code host as they are; here formulas become MathML, pages are made of the
files at the top of the checkout and of the command line's help, and links out of `docs/` are turned
to the pages that stand for them.
"""

from __future__ import annotations

import html
import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any
from xml.etree import ElementTree

import click
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
TOP = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
TOP |= {"SECURITY.md": "security.md"}
PAGES = {"README.md": "index.md", "otlp/errors.py": "reference/errors.md"} | TOP
"""The page that stands for a file outside `docs/`."""

SCRIPT = re.compile(r"^\[[^]]*\]\(([a-z_]+\.py)\)$", re.MULTILINE)
"""A line that is a link to a script beside the page: the site shows the script in its place."""

LINK = re.compile(r"\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")
MATHML = "{http://www.w3.org/1998/Math/MathML}"
ElementTree.register_namespace("", MATHML[1:-1])
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not written yet."""
    made = {*TOP.values(), "reference/command_line.md"}
    docs = Path(config.docs_dir)
    config.nav = [
        _written(entry, lambda page: page in made or (docs / page).exists()) for entry in config.nav
    ]
    return config


def _written(entry: Any, exists: Callable[[str], bool]) -> Any:
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
    """Make pages of the files at the top of the checkout, and of the command line's help."""
    for source, page in TOP.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "reference/command_line.md", content=command_line()))
    return files


def command_line() -> str:
    """The help of every command, as a page."""
    os.environ["COLUMNS"] = "88"
    from otlp.cli import main

    top = click.Context(main, info_name="otlp")
    parts = ["# Command line\n\nThe help of every command, as `otlp COMMAND --help` prints it.\n"]
    for name in main.list_commands(top):
        command = main.get_command(top, name)
        assert command is not None
        context = click.Context(command, parent=top, info_name=name, terminal_width=88)
        parts.append(f"\n## otlp {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "".join(parts)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links out of `docs/` to pages, show scripts, and mark Python sessions as such."""
    folder = Path(page.file.src_uri).parent

    def to_page(found: re.Match[str]) -> str:
        target = os.path.normpath(Path("docs") / folder / found[1])
        if target not in PAGES:
            return found[0]
        return f"]({os.path.relpath(PAGES[target], folder)}{found[2] or ''})"

    def to_source(found: re.Match[str]) -> str:
        source = (ROOT / "docs" / folder / found[1]).read_text(encoding="utf-8")
        shown = indent(f"```python\n{source}```", "    ")
        return f'??? example "{found[1]}"\n\n{shown}'

    markdown = SCRIPT.sub(to_source, markdown)
    return LINK.sub(to_page, markdown).replace("```python\n>>>", "```pycon\n>>>")


def on_page_content(content: str, **_: Any) -> str:
    """Typeset formulas: TeX becomes MathML, which browsers draw without a script."""
    return FORMULA.sub(lambda found: typeset(found[3], found[2] == "("), content)


def typeset(formula: str, inline: bool) -> str:
    """One formula in TeX, as MathML."""
    display = "inline" if inline else "block"
    formula = re.sub(r"\\tag\{(\d+)\}", r"\\qquad (\1)", html.unescape(formula))
    math = ElementTree.fromstring(convert(formula, display=display))
    for node in math.iter():
        if node.attrib.pop("mathvariant", "") == "script":  # which browsers no longer know
            node.text = unicodedata.lookup(f"MATHEMATICAL SCRIPT CAPITAL {node.text}")
        if not inline and node.tag == f"{MATHML}msub" and node[0].text in ("max", "min"):
            node.tag = f"{MATHML}munder"
    return ElementTree.tostring(math, encoding="unicode")
