"""``otlp audit``: whether a verification rule is lossless."""

from __future__ import annotations

import ast
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from click.core import ParameterSource
from rich.text import Text

from otlp._solve import optimal_acceptance
from otlp.auditing import AuditReport, audit
from otlp.auditing.engines import ENGINES
from otlp.auditing.engines.candidate_generators import CandidateReport
from otlp.auditing.engines.engine import module_of_file
from otlp.auditing.servers import ServerReport
from otlp.auditing.subject import one_line
from otlp.cli import options
from otlp.cli.audit_engine import audit_engine
from otlp.cli.audit_server import SERVER, audit_of_server, server_options
from otlp.cli.child import ChildError, run_in_child
from otlp.cli.ending import AnswerIsNo
from otlp.cli.options import open_capture
from otlp.cli.output import console, fail, progress, write_result
from otlp.distribution import top_k
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError, OTLPError
from otlp.problem import Problem
from otlp.solvers import Solver, make_solver

Report = TypeVar("Report")

MOST_NAMES = 5
"""Functions of a file that are named, where none was given."""

_SHARED = {"seed", "json_path", "false_alarm_rate", "time_limit"}

_KINDS = {
    "engine": (
        "the verifier of an engine on random models",
        {"engine", "length"},
        {"vocab_size", "samples", "tolerance", "max_paths", *_SHARED},
    ),
    "server": ("the texts of a running server", set(SERVER), {"temperature", *_SHARED}),
}
"""What is audited in place of a rule: what that is, its own options, and others that it takes."""

_NO_DRAFTS = dict.fromkeys(("capture", "row", "scheme", "n"))


@click.command(
    epilog="""\b
Examples:
  otlp audit mine.py:verify --n 2                 rule(draft_tokens, p, q, rng) -> token
  otlp audit mine.py:verify --scheme without-replacement --n 3 --vocab-size 6
  otlp audit mine.py:verify --drafts mine.py:draft --n 1     and are the drafts what they should be?
  otlp audit mine.py:verify --capture mine.safetensors --row 3 --samples 1000000
  otlp audit package.module:verify --row 0 --temperature 0.6
  otlp audit recursive-rejection --scheme iid --n 3          one of the solvers of otlp
  otlp audit --engine hugging-face --length 3 --vocab-size 4     the verifier of a serving engine
  otlp audit --server http://127.0.0.1:8081 --baseline http://127.0.0.1:8080 --journal texts.jsonl
  otlp audit --server http://127.0.0.1:8080 --toggle cache_prompt=false   its cache off and on
"""
)
@click.argument("rule", required=False)
@click.option(
    "--engine",
    type=click.Choice(sorted(ENGINES)),
    help="In place of RULE: the verifier of an engine, where it is installed.",
)
@options.length_option(2)
@options.scheme_option()
@options.n_option(1)
@click.option(
    "--drafts",
    help="A sampler, as FILE.py:FUNCTION with function(q, rng) -> n tokens, checked against the "
    "scheme.",
)
@click.option("--capture", type=click.Path(), help="Take p and q from a capture file.")
@options.row_option(None)
@options.row_options()
@options.vocab_size_option(None)
@click.option(
    "--samples", type=click.IntRange(1000), default=100_000, help="Samples where it is sampled."
)
@click.option(
    "--false-alarm-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=1e-6,
    help="How often a sampled audit may find fault with a rule that has none.",
)
@options.tolerance_option(1e-6)
@click.option(
    "--max-paths",
    type=click.IntRange(0),
    default=100_000,
    help="Sample if the exact law needs more paths; 0 samples always.",
)
@options.seed_option()
@options.time_limit_option(300.0)
@options.json_option("Write the report to a file.")
@server_options
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
    time_limit: float,
    **settings: Any,
) -> None:
    """Say whether a verification rule is lossless.

    RULE is FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION, called as function(draft_tokens, p, q,
    rng) and returning a token, or the name of a solver.  Its exact output law is computed where
    its random draws can be followed, otherwise it is sampled and tested.

    Exit status 0: nothing was found wrong.  1: something is wrong.  2: it could not be judged
    (wrong options, a file that cannot be loaded, the time limit, a process that ended).

    Or the texts of a running server with OpenAI's interface are compared with those of a baseline,
    until they are found to differ or --texts are there; requests go to these addresses alone.

    Without a capture and a row, p and q are made up over --vocab-size tokens: 5, or 3 for an
    engine, whose drafts are paths of --length tokens, at most 8.

    The file is run, in a process of its own, so audit only what you trust.
    """
    _check(context)
    serving = {name: settings.pop(name) for name in SERVER}
    judged = {
        name: settings.pop(name)
        for name in ("samples", "false_alarm_rate", "tolerance", "max_paths")
    }
    if serving["server"] is not None:
        how = {"time_limit": time_limit, "false_alarm_rate": judged["false_alarm_rate"]}
        found = _judge(audit_of_server(serving, settings["temperature"], seed, **how), math.inf)
        _tell(found, {"audited": serving["server"], **_NO_DRAFTS}, json_path)
        if found.stopped:
            fail("not judged to the end: with --journal FILE the same command goes on from there")
        return
    if engine is not None:
        of_engine = partial(audit_engine, engine, length, vocab_size or 3, seed, **judged)
        report, candidates = _judge(of_engine, time_limit)
        _tell(report, {"audited": engine, **_NO_DRAFTS}, json_path, candidates=candidates)
        return
    assert rule is not None
    audited, made_up = rule, capture is None and row is None

    def work(report_progress: Callable[..., None]) -> tuple[AuditReport, str]:
        if made_up:
            p, q = np.random.default_rng(seed).dirichlet(np.ones(vocab_size or 5), size=2)
            q = q if settings["top_k"] is None else top_k(q, settings["top_k"])
        else:
            p, q = open_capture(capture).distributions(row or 0, **settings)
        declared = make_scheme(scheme, q, n)
        sampler = None if drafts is None else load_function(drafts, "--drafts")
        report = audit(
            _named(audited),
            p,
            declared if sampler is None else lambda rng: sampler(q.copy(), rng),
            declared=declared,
            rng=np.random.default_rng(seed),
            progress=report_progress,
            **judged,
        )
        return report, _optimum(Problem(p, declared), report)

    report, optimum = _judge(work, time_limit)
    asked = {
        "audited": rule,
        "capture": None if made_up else capture or "built-in",
        "row": None if made_up else row or 0,
        "scheme": scheme,
        "n": n,
    }
    _tell(report, asked, json_path, optimum)


def _check(context: click.Context) -> None:
    """Refuse options that do not go together."""
    asked = context.params
    given = {
        name for name in asked if context.get_parameter_source(name) == ParameterSource.COMMANDLINE
    }
    if asked["length"] > 8:
        raise click.UsageError(
            f"--length {asked['length']}: paths of at most 8 tokens can be audited"
        )

    def named(found: set[str]) -> str:
        options = [p for p in context.command.params if p.name in found]
        return ", ".join(sorted("RULE" if p.name == "rule" else p.opts[0] for p in options))

    for kind, (what, own, others) in _KINDS.items():
        if asked[kind] is not None:
            if odd := given - own - others:
                raise click.UsageError(f"--{kind} audits {what}: leave out {named(odd)}")
            return
    if asked["rule"] is None:
        raise click.UsageError("missing RULE: what is audited, or --engine NAME, or --server URL")
    for kind, (_, own, _) in _KINDS.items():
        if given & own:
            raise click.UsageError(f"{named(given & own)}: for --{kind}")
    made_up = asked["capture"] is None and asked["row"] is None
    if asked["vocab_size"] is not None and not made_up:
        raise click.UsageError("--vocab-size makes p and q up: leave out --capture and --row")
    for_logits = (asked["temperature"], asked["draft_temperature"], asked["top_p"])
    if made_up and for_logits != (1.0, None, None):
        raise click.UsageError(
            "--temperature, --draft-temperature and --top-p are for logits: add --row, and "
            "--capture if it is not the built-in one"
        )


def _tell(
    report: AuditReport | ServerReport,
    asked: Mapping[str, Any],
    json_path: Path | None,
    more: str = "",
    candidates: Sequence[CandidateReport] = (),
) -> None:
    """Print and write a report; exit status 1 if something is wrong."""
    passed = report.passed and all(each.passed for each in candidates)
    found = {"verdict": report.verdict.name, "passed": passed, "report": _record(report)}
    tested = {"candidate_generators": [asdict(each) for each in candidates]} if candidates else {}
    write_result(json_path, "audit", {**asked, **found, **tested})
    text = Text(str(report))
    text.stylize("bold green" if report.passed else "bold red", 0, len(report.verdict.name))
    console.print(text)
    if more:
        console.print(more)
    for each in candidates:
        console.print(str(each), style=None if each.passed else "bold red")
    if not passed:
        raise AnswerIsNo


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


def _optimum(problem: Problem, report: AuditReport) -> str:
    """The optimum, and what an acceptance above it says."""
    try:
        best = optimal_acceptance(problem)
    except OTLPError as error:
        return f"Optimal acceptance for {problem.drafts!r}: not known ({error})."
    said = f"Optimal acceptance for {problem.drafts!r}: {best:.6g}."
    above = report.acceptance - best
    if above <= max(1e-9, report.tolerance):
        return said
    if above <= report.acceptance_error:
        return f"{said} The sampled acceptance is above it by less than its ±."
    return (
        f"{said} The acceptance is above it, which no lossless rule on these drafts reaches: only "
        "a lossy rule, or one with other drafts, can."
    )


def _named(rule: str) -> Callable[..., Any] | Solver:
    """A function by file or module, or a solver by name."""
    if ":" in rule:
        return load_function(rule, "RULE")
    if rule.endswith(".py"):
        raise InvalidInputError(f"RULE: {rule!r} is a file without a function: {_functions(rule)}")
    return make_solver(rule)


def _functions(path: str) -> str:
    """What to write in place of a file, from what it defines; the file is not run."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError) as error:
        return f"write {path}:FUNCTION; it cannot be read ({one_line(error)})"
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not found:
        return f"write {path}:FUNCTION; it defines none"
    return "write " + " or ".join(f"{path}:{name}" for name in found[:MOST_NAMES])


def load_function(name: str, what: str) -> Callable[..., Any]:
    """Import a function from a file or a module; `what` names it in an error."""
    origin, _, attribute = name.rpartition(":")
    path = Path(origin)
    # Neighbours of the file, and modules of the working folder, as `python` itself has them.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        if path.suffix == ".py":
            module = module_of_file(path)
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


def _record(report: AuditReport | ServerReport) -> dict[str, object]:
    """The report for JSON: the texts that are furthest off in place of its laws."""
    record = asdict(report)
    if isinstance(report, ServerReport):
        return record
    del record["target"], record["output"]
    return {**record, "worst_texts": report.worst_texts()}
