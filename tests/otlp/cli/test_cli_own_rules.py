"""``otlp compare`` with own rules: audited first, marked, and harmless if they fail."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import otlp
from otlp.auditing.sampled_acceptance import LEAST, sample_acceptance
from otlp.cli import own_rules
from otlp.data import captures
from tests.example_captures import example
from tests.otlp.auditing.rules import eagle_style
from tests.otlp.cli.command import done, refused
from tests.otlp.cli.test_cli_json import SCHEMA

AUDITING = Path(__file__).parents[1] / "auditing"
FILES = {
    **dict.fromkeys(("eagle_style", "overwriting", "unfollowed"), "rules.py"),
    **dict.fromkeys(("loops", "ends", "loud", "missing"), "hostile.py"),
}


pytestmark = pytest.mark.usefixtures("rough_means", "few_repetitions")


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otlp.auditing.auditor.DEFAULT_TOKENS", 10_000)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save three rows of few tokens."""
    path = tmp_path_factory.mktemp("rows") / "rows.safetensors"
    captures.save(example(rows=3, vocab_size=12, positions=np.full(3, -1)), path)
    return path


def compare(
    rows: Path, tmp_path: Path, *rules: str, schemes: str = "iid", limit: str = "30"
) -> str:
    names = ",".join(f"{AUDITING / FILES[rule]}:{rule}" for rule in rules)
    words = f"compare {rows} --rows 2 --n 2 --schemes {schemes} --rules {names},naive --top-k 8"
    return done(*words.split(), "--time-limit", limit, "--json", tmp_path / "found.json")


def records(tmp_path: Path, rule: str) -> list[dict[str, Any]]:
    found = json.loads((tmp_path / "found.json").read_text())["results"]
    return [record for record in found if str(record["rule"]).endswith(rule)]


def test_a_comma_in_the_name_of_a_file_separates_nothing(rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine, at n = 1,2.py"
    file.write_text("def rule(draft_tokens, p, q, rng):\n    return rng.choice(len(p), p=p)\n")
    words = f"compare {rows} --rows 1 --n 1 --schemes iid --json".split()
    for rules in (f"naive,{file}:rule,k-seq", f"{file}:rule"):
        done(*words, tmp_path / "found.json", "--rules", rules)
        assert records(tmp_path, f"{file.name}:rule")


def test_rules_are_audited_and_stand_in_the_table(rows: Path, tmp_path: Path) -> None:
    output = compare(rows, tmp_path, "eagle_style", "overwriting", "unfollowed")
    assert "printed by a rule" not in output
    assert "!: the rule changes the target's distribution" in output
    assert "NOT LOSSLESS on 5 synthetic tokens (NOT_LOSSLESS): total variation" in output
    assert "not proved lossless, only sampled: it uses rng.normal" in output
    right, wrong, unfollowed = (
        records(tmp_path, name) for name in ("eagle_style", "overwriting", "unfollowed")
    )
    assert {record["reason"] for record in right} == {"LOSSLESS on 5 synthetic tokens"}
    assert {record["acceptance"] for record in wrong} == {1.0}
    assert {record["guarantee"] for record in (*right, *wrong, *unfollowed)} == {""}
    for record in (*right, *unfollowed):
        low, high = record["acceptance_interval"]
        assert 0.0 < low < record["acceptance"] < high < 1.0
    assert "eagle_style" in output and "±0.0" in output
    published = {record["row"]: record["acceptance"] for record in records(tmp_path, "naive")}
    for record in right:
        assert 0.0 < published[record["row"]] < record["acceptance_interval"][1] < 1.0


def test_what_a_rule_loses_is_exact_on_made_up_tokens_and_bounded_on_rows(
    rows: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "def first(draft_tokens, p, q, rng):\n    return draft_tokens[0]\n"
        "def right(draft_tokens, p, q, rng):\n    return rng.choice(len(p), p=p)\n"
    )
    rules = ",".join(f"{tmp_path / 'mine.py'}:{name}" for name in ("first", "right"))
    words = f"compare {rows} --rows 3 --n 2 --schemes iid --top-k 5 --lossy --rules naive,"
    output = done(*f"{words}{rules} --json {tmp_path / 'found.json'}".split())
    assert "your own, lossy" in output
    found = json.loads((tmp_path / "found.json").read_text())
    Draft202012Validator(SCHEMA).validate(found)
    losses = found["own_losses"]
    assert len(losses) == 4 and all(one["rule"].endswith("first") for one in losses)
    made_up, *each = losses
    p, q = np.random.default_rng(0).dirichlet(np.ones(own_rules.audit_size(2)), size=2)
    lost = 0.5 * np.abs(p - q).sum()
    best = otlp.solve(otlp.Problem(p, otlp.IID(q, 2))).acceptance
    assert np.allclose(made_up["total_variation_interval"], lost, atol=1e-9)
    assert math.isclose(made_up["kl"], (q * np.log(q / p)).sum(), abs_tol=1e-9)
    assert math.isclose(made_up["bound"], best + lost, abs_tol=1e-9)
    assert made_up["acceptance"] == pytest.approx(1.0)
    capture = captures.load(rows)
    for row, one in enumerate(each):
        p, q = capture.distributions(row, top_k=5)
        low, high = one["total_variation_interval"]
        assert 0.0 < low <= 0.5 * np.abs(p - q).sum() <= high
        assert one["kl"] is None and one["acceptance"] == 1.0 <= one["bound"]


def test_what_is_right_on_few_tokens_alone_is_found_on_the_rows(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "few.py").write_text(
        "def few(draft_tokens, p, q, rng):\n"
        "    return rng.choice(len(p), p=p) if len(p) <= 5 else draft_tokens[0]\n"
    )
    words = f"compare {rows} --rows 2 --n 1 --schemes iid --top-k 8 --rules".split()
    json_path = tmp_path / "found.json"
    output = done(*words, f"{tmp_path / 'few.py'}:few,naive", "--lossy", "--json", json_path)
    assert "NOT LOSSLESS on 2 of the rows" in " ".join(output.split())
    made_up, *each = json.loads(json_path.read_text())["own_losses"]
    assert made_up["total_variation_interval"][1] < 1e-9
    assert all(row["total_variation_interval"][0] > 0.0 for row in each) and "nan" not in output


def test_a_mean_is_drawn_until_it_is_known_or_the_time_is_over() -> None:
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), size=2)
    problems = [otlp.Problem(p, otlp.IID(q, 2)), otlp.Problem(q, otlp.IID(p, 2))]
    for precision, seconds in ((0.01, math.inf), (1e-9, 0.0)):
        rng = np.random.default_rng(1)
        found = sample_acceptance(eagle_style, problems, precision, seconds, rng)
        exact = [otlp.solve(one, "recursive-rejection").acceptance for one in problems]
        assert (found.error <= precision) == (seconds > 0.0)
        assert (found.draws == LEAST) == (seconds == 0.0)
        assert abs(np.mean(found.each) - np.mean(exact)) < 2.0 * found.error
        assert (np.abs(found.each - exact) < 2.0 * found.each_error).all()


def test_a_rule_is_audited_under_each_scheme(rows: Path, tmp_path: Path) -> None:
    compare(rows, tmp_path, "eagle_style", schemes="iid,without-replacement", limit="inf")
    found = {record["scheme"]: record["reason"] for record in records(tmp_path, "eagle_style")}
    assert found["iid"] == "LOSSLESS on 5 synthetic tokens"
    assert found["without-replacement"].startswith("NOT LOSSLESS")


@pytest.mark.parametrize(
    ("rule", "printed"),
    [
        ("loops", "the time limit of 0.6 s was reached"),
        ("ends", "the process exited with status 0"),
        ("loud", "the rule failed on 5 synthetic tokens: it raises ValueError"),
        ("missing", "no attribute 'missing'"),
    ],
)
def test_a_rule_that_fails_does_no_harm(
    rule: str, printed: str, rows: Path, tmp_path: Path
) -> None:
    output = compare(rows, tmp_path, rule, limit="0.2" if rule == "loops" else "30")
    assert printed in " ".join(output.split())
    assert "NOT LOSSLESS" not in output and "!:" not in output
    assert [one["acceptance"] for one in records(tmp_path, rule)] == [None, None]
    assert all(record["acceptance"] for record in records(tmp_path, "naive"))


@pytest.mark.parametrize("rule", ["nowhere.py:verify", "mine.py", "nobody", ":verify", "mine.py:"])
def test_what_is_no_rule_is_refused_before_any_work(rule: str) -> None:
    refused("compare", "--rules", rule)


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_tables_for_a_paper_have_the_numbers_of_the_json(
    command: str, rows: Path, tmp_path: Path
) -> None:
    rule = f"{AUDITING / FILES['eagle_style']}:eagle_style"
    words = (
        f"{command} {rows} --rows 3 --n 1,2 --schemes iid --top-k 8 --top-p 0.9 "
        f"--rules k-seq,{rule}".split()
    )
    files = [tmp_path / name for name in ("found.csv", "found.json", "found.tex")]
    output = done(*words, "--table", files[0], "--json", files[1])
    legend = {"compare": "±: half of the 95% sampling", "sweep": "±: half of a 95% interval over"}
    assert output.count("±: ") == 1 and legend[command] in output
    with files[0].open() as file:
        lines = list(csv.DictReader(file))
    assert {line["rule"] for line in lines} >= {"k-seq", "rules.py:eagle_style", "optimum"}
    for line in lines:
        assert (line["top_p"], line["whole_draft"], line["sampling_top_k"]) == ("0.9", "", "")
        drawn = line["rule"].startswith("rules.py")
        assert (float(line["sampling_error"]) > 0.0) == drawn
        if line["rule"] == "k-seq":
            low, high = float(line["below_low"]), float(line["below_high"])
            assert low <= float(line["below_optimum"]) <= high
            assert high - low < float(line["high"]) - float(line["low"])  # paired differences
    if command == "compare":
        found = [one for one in json.loads(files[1].read_text())["results"] if one["n"] == 2]
        mean = np.mean([one["acceptance"] for one in found if one["rule"] == "k-seq"])
        (printed,) = (one for one in lines if (one["rule"], one["n"]) == ("k-seq", "2"))
        assert float(printed["acceptance"]) == pytest.approx(mean)
    done(*words, "--rows", 1, "--n", 2, "--table", files[2])
    text = files[2].read_text()
    assert "\n% top_p = 0.9\n" in text
    exact, drawn = (
        re.search(rf"iid & {name} & 2 & 1.0 & 8 & \$0\.\d{{4}}(.*?)\$ & ", text)
        for name in ("k-seq", r"rules.py:eagle\\_style")
    )
    assert exact and exact[1] == "" and drawn and drawn[1].startswith(r" \pm 0.0")


def test_json_is_not_written_to_a_table() -> None:
    assert "compare, sweep and decode have --table" in refused("compare", "--json", "c.csv")


def test_bench_times_a_call(rows: Path, tmp_path: Path) -> None:
    names = f"{AUDITING / 'rules.py'}:eagle_style,{AUDITING / 'hostile.py'}:ends"
    sizes = "--rows 1 --n 2 --top-k 8 --solvers martingale,hub"
    words = f"bench {rows} {sizes} --rules {names}".split()
    files = "--json", tmp_path / "found.json", "--table", tmp_path / "times.csv"
    assert "Your own rules" in done(*words, *files)
    right, wrong = json.loads((tmp_path / "found.json").read_text())["rules"]
    assert right["reason"] == "LOSSLESS on 5 synthetic tokens"
    assert 0.0 < right["seconds"] < 1.0 and 0.0 < right["acceptance"] < 1.0
    assert wrong["seconds"] is None and wrong["reason"]
    lines = list(csv.DictReader((tmp_path / "times.csv").open()))
    assert [line["solver"] for line in lines] == ["martingale", "hub"]
    assert float(lines[0]["plan_ms"]) > 0.0 and lines[1]["plan_ms"] == ""
    assert "a rule must be FILE.py:FUNCTION, got 'naive'" in refused("bench", "--rules", "naive")
