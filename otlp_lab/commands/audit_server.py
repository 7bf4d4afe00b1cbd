"""``otlp lab audit-server``: whether a running server's texts follow those of a baseline."""

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
from otlp.cli.judging import false_alarm_option, judge, tell
from otlp.cli.output import fail
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import prompts_option
from otlp.errors import InvalidInputError, JournalError
from otlp.parallel.journal import Journal
from otlp_lab.servers import Completion, Completions, Pair, ServerReport, audit_server, planted
from otlp_lab.servers.pairs import Sampler

FORMAT = "otlp audit --server 2"
"""Of the journal."""


def _fields(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """Fields of a request, each as name=value: the value as JSON, or else a string."""
    found = dict[str, Any]()
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{one!r} is no FIELD=VALUE, such as top_p=0.9")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _field_option(flag: str, help: str) -> options.Decorator:
    made: options.Decorator = click.option(
        flag, multiple=True, metavar="FIELD=VALUE", callback=_fields, help=help
    )
    return made


@click.command(
    epilog="""\b
Examples:
  otlp lab audit-server http://127.0.0.1:8081 --baseline http://127.0.0.1:8080 --journal texts.jsonl
  otlp lab audit-server http://127.0.0.1:8080 --toggle cache_prompt=false   its cache off and on
"""
)
@click.argument("server", metavar="URL")
@click.option("--baseline", metavar="URL", help="The server that is right. [default: URL itself]")
@_field_option("--toggle", "A field of requests to the baseline alone; repeatable.")
@_field_option("--request", "A field of requests to both sides; repeatable.")
@options.tokens_option(5)
@click.option("--texts", type=click.IntRange(1), default=2000, help="Texts of a side, at most.")
@click.option("--parallel", type=click.IntRange(1), default=1, help="Requests to a side at a time.")
@click.option(
    "--timeout", type=options.Positive(), default=60.0, help="Seconds that an answer may take."
)
@click.option("--key-variable", help="The environment variable that holds the servers' key.")
@click.option(
    "--plant",
    type=click.FloatRange(0, 1),
    help="A control: the share of the server's texts that an old one takes the place of.",
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
    **asked: Any,
) -> None:
    """Compare the texts of the server at URL with those of a baseline.

    Both have OpenAI's interface. Texts are asked for in pairs until they are found to differ, or
    --texts are there; requests go to these servers alone. Exit status 0: nothing was found wrong.
    1: the texts differ. 2: it could not be judged.
    """
    sides, prompts = _asked(server, baseline, toggle, request, **asked)
    said = [f"{side.address} {json.dumps(side.fields)}" for side in sides]
    left: Sampler = sides[0]
    if plant is not None:
        left = planted(left, plant, np.random.default_rng(seed))
        said[0] += f", {plant:g} of its texts replaced"
    compare = partial(
        audit_server,
        left,
        sides[1],
        prompts,
        pairs=texts,
        parallel=parallel,
        names=said,
        seed=seed,
        false_alarm_rate=false_alarm_rate,
        time_limit=time_limit,
    )

    def work(progress: Callable[..., None]) -> ServerReport:
        if journal is None:
            return compare(progress=progress)
        journal.parent.mkdir(parents=True, exist_ok=True)
        heading = {"format": FORMAT, "sides": said, "prompts": prompts}
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

    report = judge(work, math.inf)  # the limit is the audit's own
    content: dict[str, Any] = dict.fromkeys(("capture", "row", "scheme", "n"))
    tell(report, {**content, "audited": server, "report": asdict(report)}, json_path)
    if report.stopped:
        fail("not judged to the end: with --journal FILE the same command goes on from there")


class Entry(NamedTuple):
    """A pair of texts, when it was kept, and when both servers had begun."""

    pair: Pair
    time: str
    started: tuple[float | None, float | None]


def read_entry(entry: Mapping[str, Any], journal: Path) -> Entry:
    """Read a line of the journal.

    Raises
    ------
    JournalError
        If its fields are not those of a pair.
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
        f"{journal}: a line is no pair of texts: the file was changed; name another file"
    )


def _check_same(
    journal: Path,
    sides: Sequence[Completions],
    last: Entry,
    started: Sequence[float | None],
    prompt: str,
) -> None:
    """Ask each side once whether it is the server whose texts the journal holds.

    Raises
    ------
    JournalError
        If it says that it is another, or began anew.
    """
    for side, before, then, now in zip(sides, last.pair, last.started, started, strict=True):
        answer = side(prompt)
        told = {
            "model": (before.model, answer.model),
            "system_fingerprint": (before.system_fingerprint, answer.system_fingerprint),
            "start": (then, now),
        }
        for name, (there, here) in told.items():
            if there != here and None not in (there, here):
                raise JournalError(
                    f"{journal}: its texts are of a server whose {name} was {there!r}, and "
                    f"{side.address} says {here!r}: it was changed or started anew; name another "
                    "file to judge it as it is"
                )


def _asked(
    server: str,
    baseline: str | None,
    toggle: Mapping[str, Any],
    request: Mapping[str, Any],
    *,
    tokens: int,
    temperature: float,
    timeout: float,
    key_variable: str | None,
    prompt_file: str | None,
    limit: int | None,
) -> tuple[list[Completions], list[str]]:
    """The two sides, and the prompts that both are given.

    Raises
    ------
    InvalidInputError
        If there is no baseline or no key, or a temperature at which texts have no law.
    """
    if baseline is None and not toggle:
        raise InvalidInputError(
            "there is no baseline: add --baseline URL, which may be the same, or --toggle "
            "FIELD=VALUE, such as cache_prompt=false, with which the same server is right"
        )
    if not 0.0 < temperature < math.inf:
        raise InvalidInputError(
            f"temperature is {temperature:g}: it must be above 0, where texts have a law"
        )
    key = os.environ.get(key_variable or "", "")
    if key_variable is not None and not key:
        raise InvalidInputError(f"the environment variable {key_variable} holds no key: export it")
    fields = {"max_tokens": tokens, "temperature": temperature, **request}
    sides = [
        Completions(address, asked, timeout, key=key)
        for address, asked in ((server, fields), (baseline or server, {**fields, **toggle}))
    ]
    read = read_prompts(prompt_file, limit)
    prompts = [one for one in read if isinstance(one, str)]
    if len(prompts) < len(read):
        raise InvalidInputError(
            f"{prompt_file} holds chats, and completions go on with text: write each as "
            "the model's template has it, as a string"
        )
    return sides, prompts
