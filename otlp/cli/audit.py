"""``otlp audit``: whether a verification rule is lossless."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from click.core import ParameterSource
from rich.text import Text

from otlp._solve import optimal_acceptance
from otlp.auditing import AuditReport, RoundReport, audit
from otlp.auditing.engines import ENGINES
from otlp.auditing.subject import one_line
from otlp.cli.audit_engine import audit_engine, round_record
from otlp.cli.child import ChildError, run_in_child
from otlp.cli.options import json_option, open_capture, row_options, scheme_option
from otlp.cli.output import console, fail, progress, write_json
from otlp.distribution import FloatArray, top_k
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError, OTLPError
from otlp.problem import Problem
from otlp.solvers import make_solver

Report = TypeVar("Report")

_FOR_ENGINES = {
    "engine",
    "length",
    "vocab_size",
    "seed",
    "json_path",
    "samples",
    "false_alarm_rate",
    "tolerance",
    "max_paths",
    "time_limit",
}
"""Options that say something of an engine's audit."""


@click.command(
    epilog="""\b
Examples:
  otlp audit mine.py:verify --n 2                 rule(draft_tokens, p, q, rng) -> token
  otlp audit mine.py:verify --scheme without-replacement --n 3 --random 6
  otlp audit mine.py:verify --drafts mine.py:draft --n 1     and are the drafts what they should be?
  otlp audit mine.py:verify --capture mine.safetensors --row 3 --samples 1000000
  otlp audit package.module:verify --row 0 --temperature 0.6
  otlp audit recursive-rejection --scheme iid --n 3          one of the solvers of otlp
  otlp audit --engine hugging-face --length 3 --random 4     the verifier of a serving engine
"""
)
@click.argument("rule", required=False)
@click.option(
    "--engine",
    type=click.Choice(sorted(ENGINES)),
    help="In place of RULE: the verifier of an engine, where it is installed.",
)
@click.option(
    "--length",
    type=click.IntRange(1, 8),
    default=2,
    help="Drafted tokens of a path, for --engine.",
)
@scheme_option
@click.option("--n", type=click.IntRange(1), default=1, help="Number of drafts.")
@click.option(
    "--drafts",
    help="A sampler, as FILE.py:FUNCTION with function(q, rng) -> n tokens, checked against the "
    "scheme.",
)
@click.option("--capture", type=click.Path(), help="Take p and q from a capture file.")
@click.option("--row", type=int, help="Row of the capture; alone, of the built-in capture.")
@row_options()
@click.option(
    "--random",
    "vocab_size",
    type=click.IntRange(1),
    help="Take random p and q over so many tokens [default, without a capture: 5].",
)
@click.option("--samples", type=click.IntRange(1000), default=100_000, help="If sampled.")
@click.option(
    "--false-alarm-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=1e-6,
    help="If sampled.",
)
@click.option("--tolerance", type=click.FloatRange(0), default=1e-6, help="If exact.")
@click.option(
    "--max-paths",
    type=click.IntRange(0),
    default=100_000,
    help="Sample if the exact law needs more paths; 0 samples always.",
)
@click.option("--seed", type=click.IntRange(0), default=0)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, 1e6, min_open=True),
    default=300.0,
    help="Seconds after which the audit is ended, not judged.",
)
@json_option("Write the report to a file.")
@click.pass_context
def command(
    context: click.Context,
    /,
    rule: str | None,
    engine: str | None,
    length: int,
    scheme: str,
    n: int,
    drafts: str | None,
    capture: str | None,
    row: int | None,
    vocab_size: int | None,
    seed: int,
    json_path: Path | None,
    samples: int,
    false_alarm_rate: float,
    tolerance: float,
    max_paths: int,
    time_limit: float,
    **cut: Any,
) -> None:
    """Say whether a verification rule is lossless.

    RULE is FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION, called as function(draft_tokens, p, q,
    rng) and returning a token, or the name of a solver.  Its exact output law is computed where
    its random draws can be followed, otherwise it is sampled and tested.

    Exit status 0: nothing was found wrong.  1: something is wrong.  2: it could not be judged
    (wrong options, a file that cannot be loaded, the time limit, a process that ended).

    The file is run, in a process of its own, so audit only what you trust.
    """
    judged: dict[str, Any] = {
        "samples": samples,
        "false_alarm_rate": false_alarm_rate,
        "tolerance": tolerance,
        "max_paths": max_paths,
    }
    if engine is not None:
        given = {
            name
            for name in context.params.keys() - _FOR_ENGINES
            if context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        }
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given - {"rule"}))
            raise click.UsageError(
                "--engine audits the verifier of an engine on random models: leave out "
                + (names or "RULE")
            )
        _tell(
            _judge(audit_engine(engine, length, vocab_size or 3, seed, **judged), time_limit),
            json_path,
        )
        return
    if rule is None:
        raise click.UsageError("missing RULE: what is audited, or --engine NAME")
    if context.get_parameter_source("length") == ParameterSource.COMMANDLINE:
        raise click.UsageError("--length is for --engine")
    audited = rule
    made_up = capture is None and row is None
    if vocab_size is not None and not made_up:
        raise click.UsageError("--random makes p and q up: leave out --capture and --row")
    for_logits = (cut["temperature"], cut["draft_temperature"], cut["top_p"])
    if made_up and for_logits != (1.0, None, None):
        raise click.UsageError(
            "--temperature, --draft-temperature and --top-p are for logits: add --row, and "
            "--capture if it is not the built-in one"
        )

    def work(report_progress: Callable[..., None]) -> tuple[AuditReport, str]:
        if made_up:
            p, q = _random_pair(vocab_size or 5, seed, cut["top_k"])
        else:
            p, q = open_capture(capture).distributions(row or 0, **cut)
        declared = make_scheme(scheme, q, n)
        sampler = None if drafts is None else _function(drafts, "--drafts")
        report = audit(
            _function(audited, "RULE") if ":" in audited else make_solver(audited),
            p,
            declared if sampler is None else lambda rng: sampler(q.copy(), rng),
            declared=declared,
            rng=np.random.default_rng(seed),
            progress=report_progress,
            **judged,
        )
        return report, _optimum(Problem(p, declared))

    report, optimum = _judge(work, time_limit)
    _tell(report, json_path, optimum)


def _tell(report: AuditReport | RoundReport, json_path: Path | None, more: str = "") -> None:
    """Print and write a report; exit status 1 if something is wrong."""
    if json_path:
        if isinstance(report, AuditReport):
            write_json(json_path, _record(report))
        else:
            write_json(json_path, round_record(report))
    text = Text(str(report))
    text.stylize("bold green" if report.passed else "bold red", 0, len(report.verdict.name))
    console.print(text, soft_wrap=True)
    if more:
        console.print(Text(more), soft_wrap=True)
    if not report.passed:
        raise SystemExit(1)


def _judge(work: Callable[[Callable[..., None]], Report], time_limit: float) -> Report:
    """Do the work in a child process, with a progress bar; exit status 2 without a report."""
    with ExitStack() as stack:
        # begun by the first report: the thread of the bar should not be forked
        bar = cache(lambda: stack.enter_context(progress("auditing", 100)))
        try:
            return run_in_child(work, time_limit, lambda label, done: bar()(label, 100 * done))
        except ChildError as error:
            reason = str(error)
        except KeyboardInterrupt:
            reason = "interrupted"
    fail(f"not judged: {reason}")


def _optimum(problem: Problem) -> str:
    try:
        best, _ = optimal_acceptance(problem)
    except OTLPError as error:
        return f"Optimal acceptance for {problem.drafts!r}: not known ({error})."
    return f"Optimal acceptance for {problem.drafts!r}: {best:.6g}."


def _random_pair(vocab_size: int, seed: int, cut: int | None) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(vocab_size), size=2)
    return p, q if cut is None else top_k(q, cut)


def _function(name: str, what: str) -> Callable[..., Any]:
    """Import a function from a file or a module."""
    origin, _, attribute = name.rpartition(":")
    path = Path(origin)
    # Neighbours of the file, and modules of the working folder, as `python` itself has them.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        if path.suffix == ".py":
            called = f"_audited_{path.stem}"  # not by the name of a module that exists
            specification = importlib.util.spec_from_file_location(called, path)
            assert specification is not None
            assert specification.loader is not None
            module = importlib.util.module_from_spec(specification)
            sys.modules[called] = module
            specification.loader.exec_module(module)
        else:
            module = importlib.import_module(origin)
        found = getattr(module, attribute)
    except (Exception, SystemExit) as error:
        raise InvalidInputError(
            f"{what}: cannot load {name!r}: {type(error).__name__}: {one_line(error)}; write it as "
            "FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"
        ) from None
    if not callable(found):
        raise InvalidInputError(f"{what}: {name!r} is a {type(found).__name__}, no function")
    function: Callable[..., Any] = found
    return function


def _record(report: AuditReport) -> dict[str, object]:
    """The report for JSON: the tokens that are furthest off in place of its vectors."""
    record = asdict(report)
    del record["target"], record["output"]
    return {**record, "verdict": report.verdict.name, "worst_tokens": report.worst_tokens()}
