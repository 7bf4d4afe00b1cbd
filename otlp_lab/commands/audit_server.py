"""``otlp lab audit-server``: test whether a server's texts follow the law of a baseline."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from otlp.cli import options
from otlp.cli.judging import false_alarm_option, judge, print_report
from otlp.cli.output import fail
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import prompts_option
from otlp.errors import InvalidInputError, JournalError
from otlp.parallel.journal import Journal
from otlp_lab.servers import Completion, Completions, Pair, ServerReport, audit_server, planted
from otlp_lab.servers.pairs import Sampler

FORMAT = "otlp audit --server 2"
"""Format name in the journal."""


def _fields(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """Parse fields of a request, each FIELD=VALUE; VALUE is JSON or else a string."""
    found = dict[str, Any]()
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"must be FIELD=VALUE, such as top_p=0.9, got {one!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


_field_option = partial(click.option, multiple=True, metavar="FIELD=VALUE", callback=_fields)


@options.grouped_command(
    epilog="""\b
Examples:
  otlp lab audit-server http://127.0.0.1:8081 --baseline http://127.0.0.1:8080 --journal texts.jsonl
  otlp lab audit-server http://127.0.0.1:8080 --toggle cache_prompt=false   prompt cache on and off
"""
)
@click.argument("server", metavar="URL")
@click.option("--baseline", metavar="URL", help="Reference server.  [default: the server itself]")
@_field_option("--toggle", help="Request field for the baseline only; repeatable.")
@_field_option("--request", help="Request field for both servers; repeatable.")
@options.tokens_option(5)
@click.option(
    "--texts", type=click.IntRange(1), default=2000, help="Maximum number of texts per server."
)
@click.option("--parallel", type=click.IntRange(1), default=1, help="Parallel requests per server.")
@click.option(
    "--timeout", type=options.POSITIVE, default=60.0, help="Timeout of a request, in seconds."
)
@click.option("--key-variable", help="Name of the environment variable with the API key.")
@click.option(
    "--plant",
    type=click.FloatRange(0, 1),
    help="Control experiment: fraction of the server's texts that are replaced by the server's "
    "first text for the same prompt.",
)
@options.journal_option
@options.limit_option(2)
@prompts_option
@options.temperature_option()
@false_alarm_option
@options.seed_option()
@options.time_limit_option(300.0)
@options.json_option("Write the report to a file.")
def command(
    server: str,
    baseline: str | None,
    toggle: dict[str, Any],
    request: dict[str, Any],
    texts: int,
    parallel: int,
    plant: float | None,
    journal: Path | None,
    seed: int,
    json_path: Path | None,
    false_alarm_rate: float,
    time_limit: float,
    **settings: Any,
) -> None:
    """Test whether the server at URL and a baseline generate texts from the same distribution.

    Both servers must have OpenAI's interface. Texts are requested in pairs until a
    difference is found or --texts is reached; requests go only to these servers. Exit status 0: no
    difference was found. 1: the texts differ. 2: the servers could not be judged.
    """
    sides, prompts = _sides_and_prompts(server, baseline, toggle, request, **settings)
    names = [f"{side.address} {json.dumps(side.fields)}" for side in sides]
    left: Sampler = sides[0]
    if plant is not None:
        left = planted(left, plant, np.random.default_rng(seed))
        names[0] += f", {plant:g} of its texts replaced"
    compare = partial(
        audit_server,
        left,
        sides[1],
        prompts,
        pairs=texts,
        parallel=parallel,
        names=names,
        seed=seed,
        false_alarm_rate=false_alarm_rate,
        time_limit=time_limit,
    )

    def work(progress: Callable[..., None]) -> ServerReport:
        if journal is None:
            return compare(progress=progress)
        journal.parent.mkdir(parents=True, exist_ok=True)
        heading = {"format": FORMAT, "sides": names, "prompts": prompts}
        with Journal(journal, heading) as kept:
            entries = [read_entry(one, journal) for one in kept.entries()]
            started = [side.started() for side in sides]
            if entries:
                _check_same(journal, sides, entries[-1], started, prompts[0])

            def keep(pair: Pair) -> None:
                when = datetime.now(UTC).isoformat(timespec="seconds")
                texts = [asdict(text) for text in pair]
                kept.append([{"pair": texts, "time": when, "started": started}])

            earlier = [entry.pair for entry in entries]
            report = compare(progress=progress, earlier=earlier, keep=keep)
            times = [entry.time for entry in entries[: report.earlier]]
            span = " to ".join(dict.fromkeys((min(times), max(times)))) if times else ""
            return replace(report, kept=f"from the journal {journal}, of {span}" if times else "")

    report = judge(work, math.inf)  # `audit_server` applies the time limit.
    content: dict[str, Any] = dict.fromkeys(("capture", "row", "scheme", "n"))
    print_report(report, {**content, "audited": server, "report": asdict(report)}, json_path)
    if report.stopped:
        fail("stopped before a result: use --journal FILE, and the same command resumes")


class Entry(NamedTuple):
    """A pair of texts, the time of recording, and the start times of both servers."""

    pair: Pair
    time: str
    started: tuple[float | None, float | None]


def read_entry(entry: Mapping[str, Any], journal: Path) -> Entry:
    """Parse an entry of the journal.

    Raises
    ------
    JournalError
        If the entry is not a pair of texts.
    """
    try:
        mine, other = (Completion(**text) for text in entry["pair"])
        texts = (mine.text, other.text, mine.model, other.model, entry["time"])
        first, second = entry["started"]
        if all(isinstance(one, str) for one in texts):
            return Entry(Pair(mine, other), entry["time"], (first, second))
    except (LookupError, TypeError, ValueError):
        pass
    raise JournalError(
        f"{journal}: each line must be a pair of texts; the file was changed: give another file"
    )


def _check_same(
    journal: Path,
    sides: Sequence[Completions],
    last: Entry,
    started: Sequence[float | None],
    prompt: str,
) -> None:
    """Send each server one request and check that the journal is from the same server.

    Raises
    ------
    JournalError
        If model, fingerprint or start time of a server differ from the journal.
    """
    for side, before, then, now in zip(sides, last.pair, last.started, started, strict=True):
        answer = side(prompt)
        fields = {
            "model": (before.model, answer.model),
            "system_fingerprint": (before.system_fingerprint, answer.system_fingerprint),
            "start": (then, now),
        }
        for name, (stored, current) in fields.items():
            if stored != current and None not in (stored, current):
                raise JournalError(
                    f"{journal}: {name} of the server must be {stored!r} as in the journal, and "
                    f"{side.address} reports {current!r}: the server was changed or restarted; "
                    "give another file to audit the current server"
                )


def _sides_and_prompts(
    server: str,
    baseline: str | None,
    toggle: Mapping[str, Any],
    request: Mapping[str, Any],
    *,
    tokens: int,
    temperature: float,
    timeout: float,
    key_variable: str | None,
    prompts: str | None,
    limit: int | None,
) -> tuple[list[Completions], list[str]]:
    """Return the two servers and the prompts.

    Raises
    ------
    InvalidInputError
        If the baseline or the key is missing, the temperature is not positive and finite, or a
        prompt is a chat.
    """
    if baseline is None and not toggle:
        raise InvalidInputError(
            "a baseline is needed: add --baseline URL (may be the same server), or --toggle "
            "FIELD=VALUE, such as cache_prompt=false, to use the same server as its own baseline"
        )
    if not 0.0 < temperature < math.inf:
        raise InvalidInputError(
            f"temperature must be above 0 and finite, got {temperature:g}: texts must be random"
        )
    key = os.environ.get(key_variable or "", "")
    if key_variable is not None and not key:
        raise InvalidInputError(f"environment variable {key_variable} must hold a key: export it")
    fields = {"max_tokens": tokens, "temperature": temperature, **request}
    sides = [
        Completions(address, body, timeout, key=key)
        for address, body in ((server, fields), (baseline or server, {**fields, **toggle}))
    ]
    read = read_prompts(prompts, limit)
    texts = [one for one in read if isinstance(one, str)]
    if len(texts) < len(read):
        raise InvalidInputError(
            f"{prompts} must not contain chats, because completions continue text: write each "
            "chat as a string in the format of the model's template"
        )
    return sides, texts
