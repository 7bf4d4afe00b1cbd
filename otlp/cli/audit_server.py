"""``otlp audit --server``: whether a running server's texts follow those of a baseline."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import click
import numpy as np

from otlp.auditing.servers import Completion, Completions, Pair, ServerReport, audit_server, planted
from otlp.auditing.servers.pairs import Sampler
from otlp.cli import options
from otlp.cli.prompt_files import read_prompts
from otlp.cli.prompts import prompts_option
from otlp.errors import InvalidInputError
from otlp.sweeps.journal import Journal


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


def _field_option(flag: str, help: str) -> Any:
    return click.option(flag, multiple=True, metavar="FIELD=VALUE", callback=_fields, help=help)


server_options = options.several(
    click.option("--server", metavar="URL", help="In place of RULE: a running server."),
    click.option("--baseline", metavar="URL", help="The server that is right. [default: --server]"),
    _field_option("--toggle", "A field of requests to the baseline alone; repeatable."),
    _field_option("--request", "A field of requests to both sides; repeatable."),
    options.tokens_option(5),
    click.option("--texts", type=click.IntRange(1), default=2000, help="Texts of a side, at most."),
    click.option(
        "--parallel", type=click.IntRange(1), default=1, help="Requests to a side at a time."
    ),
    click.option(
        "--timeout", type=options.Positive(), default=60.0, help="Seconds that an answer may take."
    ),
    click.option("--key-variable", help="The environment variable that holds the servers' key."),
    click.option(
        "--plant",
        type=click.FloatRange(0, 1),
        help="A control: the share of the server's texts that an old one takes the place of.",
    ),
    options.journal_option,
    options.limit_option(2),
    prompts_option,
)

SERVER = (
    "server baseline toggle request tokens texts parallel timeout key_variable plant journal limit "
    "prompt_file".split()
)
"""Names of these options, which `audit_of_server` takes."""


def audit_of_server(
    serving: Mapping[str, Any], temperature: float, seed: int, **how: Any
) -> Callable[[Callable[..., None]], ServerReport]:
    """The work of auditing a server by its own options and others, for `run_in_child`.

    Raises
    ------
    InvalidInputError
        If there is no baseline or no key, or a temperature at which texts have no law.
    """
    url, key_variable, journal = (serving[name] for name in ("server", "key_variable", "journal"))
    if serving["baseline"] is None and not serving["toggle"]:
        raise InvalidInputError(
            "--server has no baseline: add --baseline URL, which may be the same, or --toggle "
            "FIELD=VALUE, such as cache_prompt=false, with which the same server is right"
        )
    if not 0.0 < temperature < math.inf:
        raise InvalidInputError(
            f"temperature is {temperature:g}: it must be above 0, where texts have a law"
        )
    key = os.environ.get(key_variable or "", "")
    if key_variable is not None and not key:
        raise InvalidInputError(f"the environment variable {key_variable} holds no key: export it")
    asked = {"max_tokens": serving["tokens"], "temperature": temperature, **serving["request"]}
    of_baseline = serving["baseline"] or url, {**asked, **serving["toggle"]}
    sides = [
        Completions(address, fields, serving["timeout"], key=key)
        for address, fields in ((url, asked), of_baseline)
    ]
    read = read_prompts(serving["prompt_file"], serving["limit"])
    prompts = [one for one in read if isinstance(one, str)]
    if len(prompts) < len(read):
        raise InvalidInputError(
            f"{serving['prompt_file']} holds chats, and completions go on with text: write each as "
            "the model's template has it, as a string"
        )
    said = [f"{side.address} {json.dumps(side.fields)}" for side in sides]
    server: Sampler = sides[0]
    if (share := serving["plant"]) is not None:
        server = planted(server, share, np.random.default_rng(seed))
        said[0] += f", {share:g} of its texts replaced"

    how |= {"pairs": serving["texts"], "parallel": serving["parallel"], "names": said, "seed": seed}
    judge = partial(audit_server, server, sides[1], prompts, **how)

    def work(progress: Callable[..., None]) -> ServerReport:
        if journal is None:
            return judge(progress=progress)
        journal.parent.mkdir(parents=True, exist_ok=True)
        heading = {"format": "otlp audit --server", "sides": said, "prompts": prompts}
        with Journal(journal, heading) as kept:
            texts = [[Completion(**text) for text in entry["pair"]] for entry in kept.entries()]
            return judge(
                progress=progress,
                earlier=[Pair(*pair) for pair in texts],
                keep=lambda pair: kept.append([{"pair": [asdict(text) for text in pair]}]),
            )

    return work
