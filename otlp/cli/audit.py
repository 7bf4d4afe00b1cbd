"""``otlp audit``: test whether a verification rule is lossless."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from otlp._solve import optimal_acceptance, solve
from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, audit, audit_rounds
from otlp.auditing.argument_order import read_sampler
from otlp.auditing.command import CommandRule
from otlp.auditing.module_of_file import module_of_file
from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_option
from otlp.cli.judging import JUDGING, judge, judging_options, one_line_summary, print_report, record
from otlp.cli.options import SolverName
from otlp.data.sampling_cuts import SAMPLING
from otlp.distribution import top_k
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError, OTLPError, one_line
from otlp.problem import Problem
from otlp.solvers import Solver, make_solver

CASES_PER_BATCH = 64
"""Number of path cases sent to a program before its answers are read."""

MAX_SUGGESTIONS = 5
"""Maximum number of functions suggested for a file given without a function."""


class AcceptanceOrSolver(SolverName):
    """A nonnegative number or the name of a solver."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float, or the name of a solver if `value` is not a number."""
        try:
            number = float(value)
        except ValueError:
            return super().convert(value, param, ctx)
        return click.FloatRange(0).convert(number, param, ctx)


@options.grouped_command(
    epilog="""\b
Examples:
  otlp audit mine.py:verify --n 2                 rule(draft_tokens, p, q, rng) -> token
  otlp audit mine.py:verify --scheme without-replacement --n 3 --vocab-size 6
  otlp audit mine.py:verify --drafts mine.py:draft --n 1     audit the drafts too
  otlp audit mine.py:verify --capture mine.safetensors --row 3 --samples 1000000
  otlp audit package.module:verify --row 0 --temperature 0.6
  otlp audit recursive-rejection --scheme iid --n 3          a solver of otlp
  otlp audit --command ./verifier --uniforms 2               a program in any language
  otlp audit --command ./verifier --n 1 --length 4 --brief   drafted paths; one line, for CI
"""
)
@click.argument("rule", required=False)
@click.option("--command", "program", help="Program with JSON input and output, instead of RULE.")
@click.option(
    "--uniforms",
    type=click.IntRange(0),
    default=0,
    help="Number of uniforms passed with each case; the program must use no other randomness.",
)
@options.length_option(None)
@click.option(
    "--stated",
    type=AcceptanceOrSolver(),
    help="Expected acceptance (for paths: expected tokens per round), or the name of a solver "
    "whose acceptance is expected.",
)
@click.option("--brief", is_flag=True, help="Print a summary on one line.")
@options.scheme_option()
@options.n_option(1)
@click.option(
    "--drafts",
    help="Sampler of the drafts as FILE.py:FUNCTION, function(q, rng) -> n tokens, tested against "
    "the draft scheme.",
)
@capture_option
@options.row_option(None)
@options.row_options()
@options.vocab_size_option(None)
@judging_options
@options.seed_option()
@options.time_limit_option(300.0)
@options.json_option("Write the report to a file.")
def command(
    rule: str | None,
    program: str | None,
    uniforms: int,
    length: int | None,
    stated: float | str | None,
    brief: bool,
    scheme: str,
    n: int,
    drafts: str | None,
    capture: CaptureFile,
    row: int | None,
    vocab_size: int | None,
    seed: int,
    json_path: Path | None,
    time_limit: float,
    **settings: Any,
) -> None:
    """Test whether a verification rule is lossless.

    RULE is the name of a solver, or a function, as FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION.
    The call function(draft_tokens, p, q, rng) must return a token.  The exact output distribution
    is computed if the random draws of the rule can be enumerated; otherwise the output is sampled
    and tested.

    Exit status 0: no error was found.  1: an error was found, or the acceptance is below --stated.
    2: the rule could not be judged (invalid options, a file that cannot be loaded, the time limit,
    a process that exited).

    Without --capture and --row, p and q are synthetic distributions over --vocab-size tokens
    (default 5, or 3 for paths).

    With --length, --n paths are drafted; without --length, n tokens are drafted at one position.

    --command is a program with its arguments.  The program reads one case per line, as JSON, and
    answers with one line (format: docs/any_language.md).  With --uniforms the exact output
    distribution of the program is computed, as for a function.

    FILE.py and the program are executed in a separate process; audit only code that you trust.
    """
    synthetic = capture.path is None and row is None
    if capture.path is None:
        capture.refuse_pairs("add --capture FILE")
    _check(synthetic, vocab_size, settings)
    if length is not None and isinstance(stated, str):
        raise click.UsageError(f"--stated must be a number with --length, got {stated!r}")
    if length is None and isinstance(stated, float) and stated > 1.0:
        raise click.UsageError(f"--stated must be at most 1 without --length, got {stated:g}")
    audited = _audited_name(rule, program, uniforms, length)
    size = vocab_size or (5 if length is None else 3)
    audit_settings = AuditSettings(**{name: settings.pop(name) for name in JUDGING})

    def work(report_progress: Callable[..., None]) -> tuple[AuditReport, str]:
        found = CommandRule(program, uniforms) if program else _load_rule(audited)
        expected = None if isinstance(stated, str) else stated
        if length is not None:
            return audit_paths(
                found, n, length, size, seed, expected, audit_settings, report_progress
            ), ""
        if synthetic:
            p, q = np.random.default_rng(seed).dirichlet(np.ones(size), size=2)
            q = q if settings["top_k"] is None else top_k(q, settings["top_k"])
        else:
            p, q = capture.open().distributions(row or 0, **settings)
        declared = make_scheme(scheme, q, n)
        if isinstance(stated, str):
            expected = solve(Problem(p, declared), make_solver(stated)).acceptance
        sampler = None if drafts is None else read_sampler(load_function(drafts, "--drafts"))
        report = audit(
            found,
            p,
            declared if sampler is None else lambda rng: sampler(q.copy(), rng),
            declared=declared,
            stated=expected,
            settings=audit_settings,
            rng=np.random.default_rng(seed),
            progress=report_progress,
        )
        return report, _optimum(Problem(p, declared), report)

    report, optimum = judge(work, time_limit)
    content = {
        "audited": audited,
        "capture": None if synthetic else capture.name,
        "row": None if synthetic else row or 0,
        "scheme": scheme,
        "n": n,
        "length": length,
        "drafts": drafts,
        "seed": seed,
        "vocab_size": len(report.target),
        **settings,
        "report": record(report),
    }
    words = one_line_summary(report) if brief else f"{report}\n{optimum}".rstrip()
    print_report(report, content, json_path, words)


def _check(synthetic: bool, vocab_size: int | None, settings: Mapping[str, Any]) -> None:
    """Raise UsageError for options that exclude each other."""
    if vocab_size is not None and not synthetic:
        raise click.UsageError("--vocab-size needs synthetic p, q: leave out --capture and --row")
    for_logits = [settings[name] for name in ("draft_temperature", "top_p", *SAMPLING)]
    for_logits.append(settings["whole_draft"] or None)
    if synthetic and (settings["temperature"] != 1.0 or any(one is not None for one in for_logits)):
        raise click.UsageError(
            "--temperature, --draft-temperature, --top-p, --sampling-... and --whole-draft need "
            "logits: add --row, and --capture unless you mean the built-in capture"
        )


def _audited_name(rule: str | None, program: str | None, uniforms: int, length: int | None) -> str:
    """Return the name of the audited rule or program; exactly one must be given."""
    if (rule is None) == (program is None):
        raise click.UsageError("give either RULE or --command")
    if program is None and uniforms:
        raise click.UsageError("--uniforms needs --command: a function draws with its rng")
    unused = {"scheme", "drafts", "path", "row", "temperature", "draft_temperature"}
    unused |= {"top_k", "top_p", "whole_draft", *SAMPLING}
    if length is not None and (found := options.given(unused)):
        raise click.UsageError(f"--length uses synthetic models: leave out {', '.join(found)}")
    return str(rule or program)


def audit_paths(
    rule: Any,
    n: int,
    length: int,
    size: int,
    seed: int,
    stated: float | None,
    settings: AuditSettings,
    progress: Callable[..., None],
) -> AuditReport:
    """Audit rounds of n drafted paths on synthetic models."""
    if isinstance(rule, Solver):
        raise InvalidInputError("RULE must not be a solver with --length: leave out --length")
    rng = np.random.default_rng(seed)

    def tables(depth: int) -> list[Any]:
        return [rng.dirichlet(np.ones(size), (size,) * t) for t in range(depth)]

    return audit_rounds(
        rule,
        tables(length + 1),
        tables(length),
        DraftedPaths(n, length),
        batch=CASES_PER_BATCH if isinstance(rule, CommandRule) else None,
        stated=stated,
        settings=settings,
        rng=rng,
        progress=progress,
    )


def _optimum(problem: Problem, report: AuditReport) -> str:
    """Return a line with the optimal acceptance, and a comment on an acceptance above it."""
    try:
        best = optimal_acceptance(problem)
    except OTLPError as error:
        return f"Optimal acceptance for {problem.drafts}: unknown ({error})."
    line = f"Optimal acceptance for {problem.drafts}: {best:.6g}."
    above = report.acceptance - best
    if above <= max(1e-9, report.tolerance):
        return line
    if above <= report.acceptance_error:
        return f"{line} The sampled acceptance exceeds the optimum by less than its ±."
    return (
        f"{line} The acceptance exceeds the optimum. No lossless rule can do this with these "
        "drafts: the rule is lossy or uses other drafts."
    )


def _load_rule(rule: str) -> Callable[..., Any] | Solver:
    """Load a function of a file or module, or make a solver from its name."""
    if ":" in rule:
        return load_function(rule, "RULE")
    if rule.endswith(".py"):
        raise InvalidInputError(f"RULE {rule!r} must name a function of the file: {_suggest(rule)}")
    return make_solver(rule)


def _suggest(path: str) -> str:
    """Suggest FILE.py:FUNCTION from the functions that the file defines, without running it."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError) as error:
        return f"write {path}:FUNCTION (the file cannot be read: {one_line(error)})"
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not found:
        return f"write {path}:FUNCTION (the file defines no function)"
    return "write " + " or ".join(f"{path}:{name}" for name in found[:MAX_SUGGESTIONS])


def load_function(name: str, what: str) -> Callable[..., Any]:
    """Import a function from a file or a module; `what` is its name in error messages."""
    origin, _, attribute = name.rpartition(":")
    path = Path(origin)
    # Allow imports from the folder of the file, or for a module from the working folder.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        if path.suffix == ".py":
            module = module_of_file(path)
        else:
            module = importlib.import_module(origin)
        found: Callable[..., Any] = getattr(module, attribute)
    except (Exception, SystemExit) as error:
        raise InvalidInputError(
            f"{what}: cannot load {name!r}: {type(error).__name__}: {one_line(error)}; write it as "
            "FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"
        ) from None
    if not callable(found):
        raise InvalidInputError(f"{what}: {name!r} must be a function, got {type(found).__name__}")
    return found
