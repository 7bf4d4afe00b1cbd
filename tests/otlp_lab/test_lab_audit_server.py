"""``otlp lab audit-server`` with two local servers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from otlp_lab.servers import Completions
from tests.otlp.cli import command
from tests.otlp.cli.command import refused
from tests.otlp_lab.servers import Law, completion, serving

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "otlp.json").read_text())


class Served:
    """A server that draws from a law, or from a second law for requests with ``"fast": true``."""

    def __init__(self, law: Law, fast: Law | None = None, most: int = 10**6) -> None:
        self.law, self.fast, self.most = law, fast, most
        self.asked: list[dict[str, Any]] = []

    def __call__(self, path: str, request: dict[str, Any]) -> tuple[int, Any]:
        if path == "/metrics":
            return 404, "none"
        if len(self.asked) >= self.most:
            return 500, "out of memory"
        self.asked.append(request)
        law = self.fast if self.fast and request.get("fast") else self.law
        return 200, completion(law().text)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between attempts: the default five attempts take about 13 s."""
    at_once = partial(Completions, patience=0.0)
    monkeypatch.setattr("otlp_lab.commands.audit_server.Completions", at_once)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.txt"
    path.write_text("x\ny\n")
    return str(path)


@pytest.fixture
def plain() -> Iterator[tuple[Served, str]]:
    server = Served(Law(1))
    with serving(server) as url:
        yield server, url


done = partial(command.done, "lab", "audit-server", "--tokens", 2)


def test_a_baseline_against_itself(plain: tuple[Served, str], prompts: str, tmp_path: Path) -> None:
    server, url = plain
    path = tmp_path / "found.json"
    words = ("--baseline", url, "--prompts", prompts, "--texts", 12, "--json", path)
    output = done(url, *words)
    assert output.startswith("NOT_REJECTED")
    assert "12 of 12 pairs of texts, 48 tokens" in output
    assert Counter(request["prompt"] for request in server.asked) == {"x": 12, "y": 12}
    assert {request["temperature"] for request in server.asked} == {1.0}
    found = json.loads(path.read_text())
    own = {"$ref": "#/$defs/audit", "$defs": SCHEMA["$defs"]}
    Draft202012Validator(own).validate(found)
    assert (found["audited"], found["verdict"], found["scheme"]) == (url, "NOT_REJECTED", None)
    assert found["report"]["pairs"] == 12


def test_a_planted_bias_is_found(plain: tuple[Served, str], prompts: str) -> None:
    words = ("--baseline", plain[1], "--prompts", prompts, "--limit", 1, "--plant", 0.6)
    output = done(plain[1], *words, status=1)
    assert output.startswith("TEXTS_DIFFER")
    assert ", 0.6 of its texts replaced; baseline: " in output


def test_a_field_of_requests_turns_the_fault_on(prompts: str) -> None:
    server = Served(Law(1), fast=Law(2, 0.8))
    with serving(server) as url:
        words = (url, "--prompts", prompts, "--parallel", 3, "--request", "fast=true")
        done(*words, "--toggle", "fast=false", "--request", "user=a=b", status=1)
    assert Counter(request["fast"] for request in server.asked)[True] >= 20
    assert {request["user"] for request in server.asked} == {"a=b"}


def test_it_goes_on_from_its_journal(
    plain: tuple[Served, str], prompts: str, tmp_path: Path
) -> None:
    journal = tmp_path / "folder" / "texts.jsonl"
    broken = Served(Law(2), most=11)
    with serving(broken) as url:
        texts = "--texts", 16, "--journal", journal
        words = url, "--baseline", plain[1], "--prompts", prompts, *texts
        output = done(*words, status=2)
        assert "11 of 16 pairs of texts" in output
        assert "status 500: out of memory (5 tries)" in output
        assert "the same command resumes" in output
        assert len(journal.read_text().splitlines()) == 12
        broken.most = 10**6
        output = done(*words)
        assert "16 of 16 pairs of texts, 64 tokens" in output
        assert re.search(r"11 of the pairs are from the journal .*texts\.jsonl, of 20\d\d-", output)
        assert len(broken.asked) == 17  # and the check for the same server
        other = done(*words, "--temperature", 0.5, status=2)
        assert "the journal is of another run" in other


@pytest.mark.parametrize("changed", ["system_fingerprint", "model", "start"])
def test_a_server_that_was_changed_is_not_judged_by_its_old_texts(
    changed: str, plain: tuple[Served, str], prompts: str, tmp_path: Path
) -> None:
    server: dict[str, Any] = {"model": "tiny", "system_fingerprint": "b1", "start": 10}
    law = Law(3)

    def reply(path: str, request: dict[str, Any]) -> tuple[int, Any]:
        if path == "/metrics":
            return 200, f"# HELP\nprocess_start_time_seconds {server['start']}.5e+1\n"
        build = {name: server[name] for name in ("model", "system_fingerprint")}
        return 200, completion(law().text, **build)

    with serving(reply) as url:
        words = (url, "--baseline", url, "--prompts", prompts, "--texts", 3)
        kept = ("--journal", tmp_path / "texts.jsonl")
        done(*words, *kept)
        assert "3 of the pairs are from the journal" in done(*words, *kept)
        server[changed] = 20 if changed == "start" else "other"
        output = done(*words, *kept, status=2)
        assert f"{changed} of the server must be " in output
        assert "give another file to audit the current server" in " ".join(output.split())
        done(*words, "--journal", tmp_path / "new.jsonl")


def test_only_addresses_that_are_named_are_asked(plain: tuple[Served, str], prompts: str) -> None:
    with serving(lambda path, request: (307, plain[1])) as url:
        output = done(url, "--baseline", url, "--prompts", prompts, status=2)
    assert "redirections are not followed" in output
    assert plain[0].asked == []


def test_chats_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    printed = refused("lab", "audit-server", *BASELINE, "--prompts", path)
    assert "must not contain chats, because completions continue text" in printed


BASELINE = ("http://127.0.0.1:1", "--baseline", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (BASELINE[:1], "a baseline is needed: add --baseline URL"),
        ((*BASELINE, "--temperature", "0"), "temperature must be above 0 and finite, got 0"),
        ((*BASELINE, "--temperature", "nan"), "temperature must be above 0 and finite, got nan"),
        ((*BASELINE, "--key-variable", "NO_SUCH_KEY"), "NO_SUCH_KEY must hold a key: export it"),
        ((*BASELINE, "--request", "alone"), "must be FIELD=VALUE, such as top_p=0.9, got 'alone'"),
        ((*BASELINE, "--prompts", "/nowhere"), "cannot read the prompts"),
        ((*BASELINE, "--samples", "2000"), "No such option"),
        (("mine.py:rule", *BASELINE), "unexpected extra argument"),
        (("there", "--baseline", "here"), "the address must be written as http://"),
        (BASELINE[1:], "Missing argument 'URL'"),
    ],
)
def test_wrong_options(words: tuple[str, ...], message: str) -> None:
    assert message in refused("lab", "audit-server", *words)


def test_nobody_is_there(tmp_path: Path) -> None:
    assert "is it running there? (5 tries)" in refused(
        "lab", "audit-server", "--tokens", 2, *BASELINE
    )
