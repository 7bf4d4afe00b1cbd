"""``otlp compare`` with rules of a file: audited first, marked, and harmless if they fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.otlp.cli.command import done, refused

AUDITING = Path(__file__).parents[1] / "auditing"
FILES = {
    **dict.fromkeys(("eagle_style", "overwriting", "unfollowed"), "rules.py"),
    **dict.fromkeys(("loops", "ends", "loud", "missing"), "hostile.py"),
}


def compare(tmp_path: Path, *rules: str, schemes: str = "iid", limit: str = "30") -> str:
    names = ",".join(f"{AUDITING / FILES[rule]}:{rule}" for rule in rules)
    words = f"compare --rows 2 --n 2 --schemes {schemes} --rules {names},naive --top-k 30"
    return done(*words.split(), "--time-limit", limit, "--json", tmp_path / "found.json")


def records(tmp_path: Path, rule: str) -> list[dict[str, object]]:
    found = json.loads((tmp_path / "found.json").read_text())["results"]
    return [record for record in found if str(record["rule"]).endswith(rule)]


def test_rules_are_audited_and_stand_in_the_table(tmp_path: Path) -> None:
    output = compare(tmp_path, "eagle_style", "overwriting", "unfollowed")
    assert "printed by a rule" not in output
    assert "!: the rule changes the target's distribution" in output
    assert "NOT LOSSLESS on 5 made-up tokens (NOT_LOSSLESS): total variation" in output
    assert "no proof that it is lossless, it was sampled: it uses rng.normal" in output
    right, wrong, unfollowed = (
        records(tmp_path, name) for name in ("eagle_style", "overwriting", "unfollowed")
    )
    assert {record["guarantee"] for record in right} == {"LOSSLESS"}
    assert {record["acceptance"] for record in wrong} == {1.0}
    assert {record["guarantee"] for record in (*wrong, *unfollowed)} == {""}
    published = {record["row"]: record["acceptance"] for record in records(tmp_path, "naive")}
    for record in right:
        assert 0.0 < published[record["row"]] < record["acceptance"] < 1.0  # type: ignore[operator]


def test_a_rule_is_audited_under_each_scheme(tmp_path: Path) -> None:
    compare(tmp_path, "eagle_style", schemes="iid,without-replacement", limit="inf")
    found = {record["scheme"]: record["guarantee"] for record in records(tmp_path, "eagle_style")}
    assert found == {"iid": "LOSSLESS", "without-replacement": ""}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("loops", "the time limit of 3 s was reached"),
        ("ends", "it ended its process with status 0"),
        ("loud", "RULE_FAILED"),
        ("missing", "no attribute 'missing'"),
    ],
)
def test_a_rule_that_fails_does_no_harm(rule: str, said: str, tmp_path: Path) -> None:
    output = compare(tmp_path, rule, limit="1" if rule == "loops" else "30")
    assert said in " ".join(output.split())
    assert all(record["acceptance"] for record in records(tmp_path, "naive"))


@pytest.mark.parametrize("rule", ["nowhere.py:verify", "mine.py", "nobody", ":verify", "mine.py:"])
def test_what_is_no_rule_is_refused_before_any_work(rule: str) -> None:
    refused("compare", "--rules", rule)
