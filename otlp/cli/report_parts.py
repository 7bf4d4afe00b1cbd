"""Commands that a report runs, and the folder with their results."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import file_digest, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from otlp.cli.capture_file import CaptureFile
from otlp.cli.output import collected, warn, write_json
from otlp.data.sampling_cuts import SAMPLING
from otlp.errors import JournalError, OutputError
from otlp.report.results import Result
from otlp.studies.compare import COUPLED, LIKELIEST

COUNTS = "1,2,4,8"
"""Numbers of drafts at one position."""

BUDGETS = "8,16,32"
"""Numbers of draft tokens per round."""

RULES = f"recursive-rejection,k-seq,{COUPLED},{LIKELIEST}"

TIMED = "martingale,k-seq,recursive-rejection"


AUTO = {"device": "auto", "dtype": "auto"}
UNSET = {"sampling_top_k": 0, "sampling_top_p": 1.0, "sampling_min_p": 0.0} | AUTO
"""Values of options that change nothing."""


@dataclass(frozen=True)
class Part:
    """One command of a report.

    Attributes
    ----------
    words : tuple of str
        Words after ``otlp``.
    files : mapping of str to str
        Options for output files besides ``--json``, and their file extensions.
    hidden : tuple of str
        Options that do not change the results; not shown on the page.
    """

    words: tuple[str, ...]
    files: Mapping[str, str]
    hidden: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The shell command."""
        return shlex.join(("otlp", *self.words))


JSON, FIGURE = {"--json": ".json"}, {"--figure": ".svg"}


def words_of(settings: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """Return options as shell words, without those that are None or change nothing."""
    chosen = {name: settings[name] for name in names or settings}
    kept = {n: v for n, v in chosen.items() if v is not None and v != UNSET.get(n)}
    return tuple(w for n, v in kept.items() for w in (f"--{n.replace('_', '-')}", str(v)))


def parts_of(
    file: CaptureFile, models: tuple[str, ...], text_temperature: float, settings: Mapping[str, Any]
) -> dict[str, Part]:
    """Return the commands for one pair of models, by name of the result.

    Parameters
    ----------
    file : CaptureFile
    models : tuple of str
        Options that choose the models of the capture and the prompts; empty if not available.
    text_temperature : float
        Temperature at which the text of the capture was generated.
    settings : mapping
        Options of ``otlp report``, by name.
    """
    served = words_of(settings, "temperature", *SAMPLING)
    costs = words_of(settings, "draft_cost", "node_cost")
    jobs = ("--jobs", str(settings["jobs"] or os.cpu_count() or 1))
    name, spread = file.words, ("--rows", str(settings["rows"]))
    swept = ("sweep", *name, *spread, "--n", COUNTS, "--rules", RULES)
    kept = {**FIGURE, "--journal": ".jsonl"}
    found = {
        "overlap": Part(("info", *name, *spread), FIGURE),
        "one_place": Part(swept, kept, jobs),
        "as_served": Part((*swept, *served), kept, jobs),
    }
    if any(word.startswith("--sampling") for word in served):
        found["whole_draft"] = Part((*swept, *served, "--whole-draft"), kept, jobs)
    text = () if text_temperature == 1.0 else ("--temperature", str(text_temperature))
    if source := models or name:  # `lab design` without FILE uses other models.
        words = ("lab", "design", *source, "--nodes", BUDGETS, *text, *costs)
        found["round"] = Part(words, {**FIGURE, "--statistics": ".statistics.json"})
    timed = ("bench", *name, "--top-k", "0", "--n", COUNTS, "--solvers", TIMED)
    found["verification"] = Part(timed, FIGURE)
    if models:
        modes = ("--algorithms", "block,two-slice", "--paths", "1,2", "--length", "4")
        found["decoding"] = Part(("decode", *models, *text, *modes), {})
    return found


def run_parts(parts: Mapping[str, Part], folder: Path, stamp: str) -> dict[str, Result]:
    """Run the commands that have no stored result, and print each command.

    Parameters
    ----------
    parts : mapping of str to Part
    folder : Path
        Folder for the results.
    stamp : str
        `stamp_of` the data.  Results of other data are not used.
    """
    found = {}
    for number, (name, part) in enumerate(parts.items(), start=1):
        warn(f"{number} of {len(parts)}: {part.command}")
        found[name] = _result(part, folder, stamp)
    return found


def _result(part: Part, folder: Path, stamp: str) -> Result:
    key = sha256(json.dumps([stamp, part.words]).encode()).hexdigest()[:12]
    files = {option: folder / f"{key}{ending}" for option, ending in {**JSON, **part.files}.items()}
    finished = folder / f"{key}.printed.json"
    needed = [finished, *(path for path in files.values() if path.suffix in (".json", ".svg"))]
    if not all(path.exists() for path in needed):
        words = [*part.words, *part.hidden, *(str(w) for pair in files.items() for w in pair)]
        try:
            write_json(finished, run_quietly(words))
        except click.ClickException as error:
            if isinstance(error.__context__, OSError | OutputError | JournalError):
                raise  # The disk failed, not the command.
            # Readers of the page do not need the class of the error.
            return Result(part.command, reason=re.sub(r"^\w+Error: ", "", error.format_message()))
    content, printed = (json.loads(path.read_bytes()) for path in (files["--json"], finished))
    figure = files["--figure"].read_text(encoding="utf-8") if "--figure" in files else ""
    return Result(part.command, content, figure, printed)


def stamp_of(*sources: str | Path | None) -> str:
    """Hash the contents of files, words that are not files, and the code of otlp."""
    stamp = sha256(_code().encode())
    for source in sources:
        path = Path(source or "")
        stamp.update(str(source).encode(errors="surrogateescape"))
        if path.is_file():
            with open(path, "rb") as file:
                stamp.update(file_digest(file, "sha256").digest())
    return stamp.hexdigest()[:16]


@cache
def _code() -> str:
    """Hash the sources of otlp and otlp_lab, if installed."""
    stamp = sha256()
    for spec in map(find_spec, ("otlp", "otlp_lab")):
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(folder).rglob("*.py")):
                stamp.update(sha256(path.read_bytes()).digest())
    return stamp.hexdigest()


def clear(folder: Path) -> None:
    """Remove stored results, and the folder if it is then empty."""
    with suppress(OSError):
        for path in folder.iterdir():
            if re.fullmatch(r"\.?([0-9a-f]{12}|capture)(\.\w+)*\.(json|jsonl|svg)", path.name):
                path.unlink()
        folder.rmdir()


def run_quietly(words: Sequence[str]) -> list[str | list[list[str]]]:
    """Run a command of otlp in this process and return its printed output.

    Raises
    ------
    click.ClickException
        If the arguments are invalid or the command fails.
    """
    main = click.get_current_context().find_root().command
    with collected() as printed, main.make_context("otlp", list(words)) as context:
        main.invoke(context)
    return printed
