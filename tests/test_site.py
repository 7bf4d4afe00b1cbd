"""Additions of the site to the pages: copied sessions, notebooks, names; all in a browser."""

from __future__ import annotations

import codeop
import contextlib
import functools
import html
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.pages import PAGES, ROOT, SOURCES

pytest.importorskip("mkdocs", reason='pip install -e ".[docs]"')


def load_hooks() -> Any:
    specification = spec_from_file_location("hooks", ROOT / "docs" / "site" / "hooks.py")
    hooks = module_from_spec(specification)
    specification.loader.exec_module(hooks)
    return hooks


HOOKS = load_hooks()
SESSION = re.compile(
    r"^```python\n(>>> .+?)^```|^((?: *(?:>>>|\.\.\.) .*\n(?: *\S.*\n)*)+)", re.M | re.S
)


def sessions(text: str) -> list[str]:
    return [fenced or bare for fenced, bare in SESSION.findall(text)]


def complete(lines: list[str]) -> list[str]:
    """Return the statements of lines typed at a prompt."""
    statements: list[str] = []
    begun: list[str] = []
    for line in lines:
        begun.append(line)
        if codeop.compile_command("\n".join(begun), symbol="single") is not None:
            statements += ["\n".join(begun)] * any(begun)
            begun = []
    assert not begun, f"never ends: {begun}"
    return statements


@pytest.mark.parametrize(
    "page", [*PAGES, *SOURCES.values()], ids=lambda p: str(p.relative_to(ROOT))
)
def test_what_is_copied_is_what_a_prompt_takes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert ">>> " not in text or sessions(text)
    for session in sessions(text):
        copied = HOOKS.typed(session)
        assert ">>>" not in copied
        typed = sum(line.lstrip().startswith(">>>") for line in session.splitlines())
        # the button removes text after the last character
        assert len(complete([*copied.rstrip().split("\n"), ""])) == typed


def test_a_block_of_code_carries_what_is_copied() -> None:
    shown = (
        '<span class="gp">&gt;&gt;&gt; </span><span class="n">1 &lt; 2</span>\n'
        '<span class="go">True</span>\n'
    )
    block = f"<pre><span></span><code>{shown}</code></pre>"
    made = HOOKS.on_page_content(block)
    (copied,) = re.findall(r'data-copy="([^"]*)"', made)
    assert html.unescape(copied) == "1 < 2\n" and made.endswith(f"<code>{shown}</code></pre>")
    plain = "<pre><span></span><code>otlp bench\n</code></pre>"
    assert HOOKS.on_page_content(plain) == plain


def test_a_displayed_formula_breaks_between_its_parts() -> None:
    shown = HOOKS.typeset(
        r"a = b \quad \text{for } c, \qquad d \allowbreak = e \tag{1}", inline=False
    )
    assert shown.startswith('<div class="formula">') and shown.count("<math") == 5
    assert HOOKS.typeset(r"a \quad b", inline=True).count("<math") == 1


@pytest.mark.parametrize("script", HOOKS.GALLERY, ids=lambda path: path.stem)
def test_a_notebook_holds_its_script_and_shows_its_figure(script: Path) -> None:
    found = json.loads(HOOKS.notebook(script))
    printed, code, shown = ("".join(cell["source"]) for cell in found["cells"])
    assert script.read_text(encoding="utf-8").rstrip().endswith(code)
    compile(code, script.name, "exec")
    assert f'SVG("{script.stem}.svg")' in shown and 'pip install -e ".[plot]"' in printed


def test_every_script_of_the_gallery_has_a_thumbnail() -> None:
    page = (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8")
    grid = HOOKS.thumbnails(page)
    assert grid.count("<a ") == len(HOOKS.GALLERY)
    assert all(f'src="{script.stem}.svg"' in grid for script in HOOKS.GALLERY)


def test_what_leads_to_a_page_is_called_what_the_page_is_called() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    labelled = {
        label: page for label, page in re.findall(r"^ +- ([^:\n]+): (\S+\.md)$", text, re.M)
    }
    assert labelled == {"Home": "index.md", "Gallery": "gallery/index.md"}
    listed = set(re.findall(r"\S+\.md$", text, re.M)) - set(HOOKS.TOP.values())
    docs = ROOT / "docs"
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """Return the address of the site, and its pages."""
    pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Suppress log messages."""

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=folder)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages = sorted(str(page.parent.relative_to(folder)) for page in folder.rglob("index.html"))
        yield f"http://127.0.0.1:{server.server_port}", pages
        server.shutdown()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Return Chromium, from playwright or installed on the system."""
    playing = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playing.sync_playwright() as play:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            opened = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playing.Error as error:
            pytest.skip(f"no browser: playwright install chromium ({error})")
        yield opened
        opened.close()


WIDER = """() => [...document.querySelectorAll('.md-content *')]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .filter(e => { for (let p = e; p; p = p.parentElement)
        if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX)) return false;
        return true; })
    .map(e => e.outerHTML.slice(0, 120))"""
"""Elements that extend beyond the window and do not scroll."""
CUT = """() => [...document.querySelectorAll('.formula')]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
"""Displayed formulas wider than their container."""
SOUGHT = {
    "speed-up": "tokens_a_second/",
    "speedup": "tokens_a_second/",
    "throughput": "serving/",
    "vllm": "serving/",
    "sglang": "engines/",
    "quickstart": "",
    "pip": "install/",
    "citation": "cite/",
    "medusa": "decode/",
    "eagle": "other_software/",
    "notebook": "gallery/",
    "temperature": "gallery/",
    "GPU": "faq/",
    "sample_many": "reference/plans/",
    "global resolution": "global_resolution/",
}
"""The first result of the search box."""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_stay_in_the_window_and_every_request_is_answered(
    site: tuple[str, list[str]], width: int, scheme: str
) -> None:
    address, pages = site
    with browser() as opened:
        context = opened.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        page, failed = context.new_page(), []
        page.on("response", lambda got: got.status >= 400 and failed.append(got.url))  # type: ignore[func-returns-value]
        page.on("console", lambda printed: printed.type == "error" and failed.append(printed.text))  # type: ignore[func-returns-value]
        page.on("pageerror", lambda error: failed.append(str(error)))

        def lost(request: Any) -> None:
            if request.failure != "net::ERR_ABORTED":  # not needed by the next page
                failed.append(request.url)

        page.on("requestfailed", lost)
        for name in pages:
            page.goto(f"{address}/{name}/", wait_until="load")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert not page.evaluate(WIDER), name
            assert not page.evaluate(CUT), name
        assert not failed


@pytest.mark.slow
def test_the_search_box_finds_the_page(site: tuple[str, list[str]]) -> None:
    box, found = ".md-search__input", ".md-search-result__item a"
    first = {}
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"{site[0]}/", wait_until="networkidle")
        page.click(box)
        for words in SOUGHT:
            for typed, state in (("", "detached"), (words, "visible")):
                page.fill(box, typed)
                page.press(box, "End")
                page.wait_for_selector(found, state=state)
            at = page.eval_on_selector(found, "link => link.pathname")
            first[words] = at.removeprefix("/")
    assert first == SOUGHT


@pytest.mark.slow
def test_the_copy_button_gives_what_a_prompt_takes(
    site: tuple[str, list[str]], tmp_path: Path
) -> None:
    with browser() as opened:
        context = opened.new_context()
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto(f"{site[0]}/", wait_until="networkidle")
        page.click("[data-md-type=copy]")
        copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import numpy as np\nimport otlp\n") and ">>>" not in copied
    ran = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=f"{copied}\n\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "OPTIMAL 0.8500" in ran.stdout and "Error" not in ran.stderr
