"""What is said of the package in other places is what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import otlp

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == otlp.__version__
    for file, line in {
        "CITATION.cff": r"^version: (.+)$",
        "docs/cite.md": r"version = \{(.+)\}",
        "packaging/conda/recipe.yaml": r'^  version: "(.+)"$',
    }.items():
        found = re.search(line, (ROOT / file).read_text(), re.M)
        assert found and found[1] == otlp.__version__, file


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    text = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    run = text.partition("  run:\n")[2].partition("\n\n")[0]
    asked = dict(re.findall(r"^    - ([\w-]+) (.+)$", run, re.M))
    assert asked.pop("python") == ">=${{ python_min }}"
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in text
    wanted = dict(
        re.fullmatch(r"([\w-]+)(.+)", line).group(1, 2) for line in PROJECT["dependencies"]
    )
    # conda-forge has no builds between releases, and its own name for the Python part
    wanted["ortools-python"] = re.sub(r"^(>=\d+\.\d+).*", r"\1", wanted.pop("ortools"))
    assert asked == wanted
    assert f"- otlp = {PROJECT['scripts']['otlp']}" in text


def test_no_example_needs_what_the_source_distribution_leaves_out() -> None:
    left_out = re.findall(r"^prune (\S+)$", (ROOT / "MANIFEST.in").read_text(), re.M)
    assert "bench/data" in left_out
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "otlp").rglob("*.py")]
    for page in pages:
        for line in re.findall(r"^ *(?:>>>|\.\.\.) .*", page.read_text(encoding="utf-8"), re.M):
            assert not any(folder in line for folder in left_out), f"{page.name}: {line}"


def test_hooks_are_of_the_versions_that_are_installed_for_development() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    (pinned,) = re.findall(r"rev: v(.+)", hooks)
    assert f"ruff=={pinned}" in PROJECT["optional-dependencies"]["dev"]
