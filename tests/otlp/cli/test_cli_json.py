"""The `--json` output of every command matches docs/schemas/otlp.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import otlp
from otlp.cli import main
from otlp.cli.output import write_json
from otlp.data import captures
from tests.example_captures import example
from tests.otlp.cli.command import PRODUCT

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "otlp.json").read_text())

WORDS = {
    "solve": "--row 3 --n 3 --temperature 0.7 --top-k 20 --solver linear-program -o form=relaxed",
    "export": "--to {}/row.mps --top-k 5 --n 2",
    "check": "--rows 2 --top-k 4 --solvers martingale,max-flow,hub",
    "bench": "--rows 1 --top-k 4,0 --n 2 --solvers martingale,hub",
    "audit": "naive --n 2 --vocab-size 3",
    "vectors": "",
    "sweep": "--rows 2 --n 2 --rules naive,hub",
    "compare": "--rows 2 --n 1,2 --schemes iid,hub --rules naive",
    "decode": "--limit 1 --algorithms block --paths 1 --length 2 --tokens 3 --device cpu",
    "cascade": "--limit 2 --cascades opt,token-v3 --threshold 0.3 --length 2 --device cpu",
    "capture": "{}/mine.safetensors --limit 1 --tokens 2 --device cpu",
    "info": "",
    "report": "{}/rows.safetensors --jobs 1 --output {}/page.html",
}
"""Arguments of each command."""

NEEDS_MODELS = {"decode", "cascade", "capture"}


def written(command: str, words: str, folder: Path) -> dict[str, Any]:
    """Return the JSON output of a command, checked against its part of the schema."""
    path = folder / "written.json"
    captures.save(example(rows=3, vocab_size=5), folder / "rows.safetensors")
    arguments = [command, *words.replace("{}", str(folder)).split(), "--json", str(path)]
    result = CliRunner(catch_exceptions=False).invoke(main, arguments)
    assert result.exit_code in (0, 1), result.output
    found: dict[str, Any] = json.loads(path.read_text(), parse_constant=pytest.fail)
    own = {"$ref": f"#/$defs/{command}", "$defs": SCHEMA["$defs"]}
    Draft202012Validator(own).validate(found)
    return found


def test_the_schema_is_one_and_has_every_command() -> None:
    """Except laboratory commands, whose format is not guaranteed."""
    Draft202012Validator.check_schema(SCHEMA)
    assert [entry["$ref"].rpartition("/")[2] for entry in SCHEMA["oneOf"]] == PRODUCT
    assert list(WORDS) == PRODUCT


def test_every_field_is_described() -> None:
    def check(part: dict[str, Any], where: str) -> None:
        for name, field in part.get("properties", {}).items():
            assert field.get("description") or "$ref" in field, f"{where}.{name}"
            check(field, f"{where}.{name}")
        check(part["items"], where) if "items" in part else None

    for name, part in SCHEMA["$defs"].items():
        assert part["description"]
        check(part, name)


@pytest.mark.usefixtures("few_repetitions")
@pytest.mark.parametrize("command", WORDS)
def test_a_command_writes_what_the_schema_says(command: str, tmp_path: Path) -> None:
    if command in NEEDS_MODELS:
        pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
        pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
    found = written(command, WORDS[command], tmp_path)
    assert (found["command"], found["format"], found["otlp"]) == (command, 1, otlp.__version__)
    Draft202012Validator(SCHEMA).validate(found)  # each file matches only one part


def test_a_solve_can_be_made_again_from_what_it_writes(tmp_path: Path) -> None:
    """The file has row, n, temperature and truncation, and H* proves the bound."""
    found = written("solve", "--row 3 --n 3 --temperature 0.7 --top-k 20", tmp_path)
    p, q = captures.builtin().distributions(
        found["row"], found["temperature"], top_k=found["top_k"]
    )
    problem = otlp.Problem(p, otlp.IID(q, found["n"]))
    subset = np.zeros(problem.vocab_size, dtype=bool)
    subset[found["subset"]] = True
    assert problem.dual_value(subset) == pytest.approx(found["upper_bound"], abs=1e-15)
    assert otlp.solve(problem).acceptance == found["acceptance"]


def test_what_has_no_plan_is_written_too_and_what_is_not_finite_as_null(tmp_path: Path) -> None:
    words = "--solver linear-program --top-k 60 --n 3 -o time_limit=1e-3"
    found = written("solve", words, tmp_path)
    assert (found["status"], found["acceptance"]) == ("TIME_LIMIT", None)
    write_json(tmp_path / "odd.json", {"a": [np.float64("inf"), (1.0, float("nan"))]})
    assert json.loads((tmp_path / "odd.json").read_text())["a"] == [None, [1.0, None]]
