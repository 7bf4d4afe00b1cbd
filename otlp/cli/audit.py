"""``otlp audit``: whether a verification rule is lossless."""

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
from otlp.auditing.subject import one_line
from otlp.cli import options
from otlp.cli.capture_file import CaptureFile, capture_option
from otlp.cli.judging import JUDGING, in_one_line, judge, judging_options, record, tell
from otlp.cli.options import SolverName
from otlp.data.sampling_cuts import SAMPLING
from otlp.distribution import top_k
from otlp.drafts.by_name import make_scheme
from otlp.errors import InvalidInputError, OTLPError
from otlp.problem import Problem
from otlp.solvers import Solver, make_solver

ROUNDS_AT_ONCE = 64
"""Cases of paths that a command is sent before its answers are read."""

MOST_NAMES = 5
"""Functions of a file that are named, where none was given."""


class Stated(SolverName):
    """A number of at least zero, or the name of a solver."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what is neither."""
        try:
            number = float(value)
        except ValueError:
            return super().convert(value, param, ctx)
        return click.FloatRange(0).convert(number, param, ctx)


@click.command(
    epilog="""\b
Examples:
  otlp audit mine.py:verify --n 2                 rule(draft_tokens, p, q, rng) -> token
  otlp audit mine.py:verify --scheme without-replacement --n 3 --vocab-size 6
  otlp audit mine.py:verify --drafts mine.py:draft --n 1     and are the drafts what they should be?
  otlp audit mine.py:verify --capture mine.safetensors --row 3 --samples 1000000
  otlp audit package.module:verify --row 0 --temperature 0.6
  otlp audit recursive-rejection --scheme iid --n 3          one of the solvers of otlp
  otlp audit --command ./verifier --uniforms 2               a program, in any language
  otlp audit --command ./verifier --n 1 --length 4 --brief   of paths; one line, for CI
"""
)
@click.argument("rule", required=False)
@click.option("--command", "program", help="In place of RULE: what reads and writes lines of JSON.")
@click.option(
    "--uniforms",
    type=click.IntRange(0),
    default=0,
    help="Uniform numbers that the command is handed with each case, and draws with nothing else.",
)
@options.length_option(None)
@click.option(
    "--stated",
    type=Stated(),
    help="The acceptance, or for paths the mean tokens a round, that it should have; or a solver "
    "that has it.",
)
@click.option("--brief", is_flag=True, help="Say the verdict in one line.")
@options.scheme_option()
@options.n_option(1)
@click.option(
    "--drafts",
    help="A sampler, as FILE.py:FUNCTION with function(q, rng) -> n tokens, checked against the "
    "scheme.",
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
    """Say whether a verification rule is lossless.

    RULE is FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION, called as function(draft_tokens, p, q,
    rng) and returning a token, or the name of a solver.  Its exact output law is computed where
    its random draws can be followed, otherwise it is sampled and tested.

    Exit status 0: nothing was found wrong.  1: something is wrong.  2: it could not be judged
    (wrong options, a file that cannot be loaded, the time limit, a process that ended).

    Without a capture and a row, p and q are made up over --vocab-size tokens, 5 by default, or 3
    for paths.

    --length drafts paths, --n of them; without it n tokens are drafted at one place.

    --command names a program with its arguments, which reads a case a line and answers a line (see
    the page for engine authors).  With --uniforms it is followed exactly as a function is.

    The file is run, in a process of its own, so audit only what you trust.
    """
    made_up = capture.path is None and row is None
    if capture.path is None:
        capture.refuse_pairs("give one as --capture")
    _check(made_up, vocab_size, settings)
    if length is not None and isinstance(stated, str):
        raise click.UsageError(f"--stated {stated} is of one token: give paths a number")
    audited = _audited(rule, program, uniforms, length)
    how = AuditSettings(**{name: settings.pop(name) for name in JUDGING})

    def work(report_progress: Callable[..., None]) -> tuple[AuditReport, str]:
        found = CommandRule(program, uniforms) if program else _named(audited)
        wanted = None if isinstance(stated, str) else stated
        if length is not None:
            return audit_paths(
                found, n, length, vocab_size or 3, seed, wanted, how, report_progress
            ), ""
        if made_up:
            p, q = np.random.default_rng(seed).dirichlet(np.ones(vocab_size or 5), size=2)
            q = q if settings["top_k"] is None else top_k(q, settings["top_k"])
        else:
            p, q = capture.open().distributions(row or 0, **settings)
        declared = make_scheme(scheme, q, n)
        if isinstance(stated, str):
            wanted = solve(Problem(p, declared), make_solver(stated)).acceptance
        sampler = None if drafts is None else read_sampler(load_function(drafts, "--drafts"))
        report = audit(
            found,
            p,
            declared if sampler is None else lambda rng: sampler(q.copy(), rng),
            declared=declared,
            stated=wanted,
            settings=how,
            rng=np.random.default_rng(seed),
            progress=report_progress,
        )
        return report, _optimum(Problem(p, declared), report)

    report, optimum = judge(work, time_limit)
    asked = {
        "audited": audited,
        "capture": None if made_up else capture.name,
        "row": None if made_up else row or 0,
        "scheme": scheme,
        "n": n,
    }
    said = in_one_line if brief else str
    tell(
        report, {**asked, "report": record(report)}, json_path, "" if brief else optimum, said=said
    )


def _check(made_up: bool, vocab_size: int | None, settings: Mapping[str, Any]) -> None:
    """Refuse options that do not go together."""
    if vocab_size is not None and not made_up:
        raise click.UsageError("--vocab-size makes p and q up: leave out --capture and --row")
    for_logits = [settings[name] for name in ("draft_temperature", "top_p", *SAMPLING)]
    for_logits.append(settings["whole_draft"] or None)
    if made_up and (settings["temperature"] != 1.0 or any(one is not None for one in for_logits)):
        raise click.UsageError(
            "--temperature, --draft-temperature, --top-p, --sampling-... and --whole-draft are for "
            "logits: add --row, and --capture if it is not the built-in one"
        )


def _audited(rule: str | None, program: str | None, uniforms: int, length: int | None) -> str:
    """What is audited, where one thing is."""
    if (rule is None) == (program is None):
        raise click.UsageError("name a RULE, or a program by --command")
    if program is None and uniforms:
        raise click.UsageError("--uniforms are those of --command: a function draws with rng")
    if length is not None:
        with_paths = {"scheme", "drafts", "capture", "row", "temperature", "draft_temperature"}
        options.refuse_given(
            with_paths | {"top_k", "top_p", "whole_draft", *SAMPLING},
            "--length takes made-up models",
        )
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
    """The audit of rounds over n paths, on made-up models."""
    if isinstance(rule, Solver):
        raise InvalidInputError("RULE: a solver verifies one token: leave out --length")
    rng = np.random.default_rng(seed)

    def tables(depth: int) -> list[Any]:
        return [rng.dirichlet(np.ones(size), (size,) * t) for t in range(depth)]

    return audit_rounds(
        rule,
        tables(length + 1),
        tables(length),
        DraftedPaths(n, length),
        batch=ROUNDS_AT_ONCE if isinstance(rule, CommandRule) else None,
        stated=stated,
        settings=settings,
        rng=rng,
        progress=progress,
    )


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
