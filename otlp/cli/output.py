"""What the commands share on the way out: console, files written whole, errors, lists."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

__all__ = ["console", "fail", "write_json", "write_whole"]

console = Console(highlight=False)


def fail(message: str) -> NoReturn:
    """Print one line to standard error and exit with status 2."""
    click.echo(f"otlp: {message}", err=True)
    raise SystemExit(2)


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: never half a file."""
    final = Path(path)
    temporary = final.with_name(f".{final.stem}.{secrets.token_hex(4)}{final.suffix}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, final)
    except OSError as error:
        fail(f"cannot write {final}: {error.strerror or error}")
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON, whole or not at all."""
    text = json.dumps(content, indent=1) + "\n"
    write_whole(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
