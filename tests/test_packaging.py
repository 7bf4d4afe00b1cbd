"""Package data in other files agrees with pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import otlp

ROOT = Path(__file__).parent.parent


def project(folder: str) -> Any:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


PROJECT = project(".")["project"]


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == otlp.__version__
    for file, line in {
        "CITATION.cff": r"^version: (.+)$",
        "docs/cite.md": r"version = \{(.+)\}",
        "packaging/conda/recipe.yaml": r'^  version: "(.+)"$',
        "otlp_lab/pyproject.toml": r'^version = "(.+)"$',
    }.items():
        found = re.search(line, (ROOT / file).read_text(), re.M)
        assert found and found[1] == otlp.__version__, file


def test_the_laboratory_goes_with_the_library() -> None:
    assert project("otlp_lab")["project"]["dependencies"] == [f"otlp=={otlp.__version__}"]
    extras = PROJECT["optional-dependencies"]
    assert extras["lab"] == [f"otlp-lab=={otlp.__version__}"]
    assert extras["models"] == [f"otlp-models>={project('otlp_models')['project']['version'][:3]}"]


@pytest.mark.parametrize("name", ["otlp_lab", "otlp_models"])
def test_distributions_beside_the_library_hold_their_folders(name: str) -> None:
    listed = project(name)["tool"]["setuptools"]
    inside = {path.parent for path in (ROOT / name).rglob("__init__.py")} - {ROOT / name / "build"}
    assert {ROOT / one.replace(".", "/") for one in listed["packages"]} == inside
    data = [one for some in listed["package-data"].values() for one in some]
    kept = {path for one in data for path in (ROOT / name).glob(one)}
    built = {"pyproject.toml", "LICENSE", "NOTICE"}  # contained in the wheel
    files = {path for path in (ROOT / name).rglob("*") if path.is_file() and path.suffix != ".py"}
    others = {path for path in files if not {"build", "__pycache__"} & set(path.parts)}
    assert {path for path in others - kept if "egg-info" not in str(path)} == {
        ROOT / name / one for one in built if (ROOT / name / one).exists()
    }


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    text = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    run = text.partition("  run:\n")[2].partition("\n\n")[0]
    asked = dict(re.findall(r"^    - ([\w-]+) (.+)$", run, re.M))
    assert asked.pop("python") == ">=${{ python_min }}"
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in text
    wanted = dict(
        re.fullmatch(r"([\w-]+)(.+)", line).group(1, 2) for line in PROJECT["dependencies"]
    )
    # conda-forge has no builds between releases, and another name for the Python package
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
