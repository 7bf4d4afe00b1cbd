"""Commands that write files, and a check that a written file is complete."""

from __future__ import annotations

import json
from pathlib import Path

from otlp.data import captures

WRITING = {
    "solve": ("--row", "3", "--top-k", "10", "--json", "{}/a.json"),
    "export": ("--to", "{}/a.mps", "--top-k", "5"),
    "bench": (
        *("--rows", "1", "--top-k", "5", "--n", "2", "--solvers", "martingale,orderings"),
        *("--json", "{}/a.json", "--figure", "{}/c.png"),
    ),
    "compare": (
        *("--rows", "1", "--top-k", "5", "--n", "2", "--schemes", "iid", "--rules", "naive"),
        *("--json", "{}/a.json", "--figure", "{}/b.png"),
    ),
    "report": (
        *("--output", "{}/a.html", "--rows", "1", "--sampling-top-k", "0", "--sampling-top-p", "1"),
        *("--jobs", "1", "--json", "{}/b.json"),
    ),
    "audit": ("martingale", "--n", "2", "--vocab-size", "3", "--json", "{}/a.json"),
    "decode": (
        *("--limit", "1", "--algorithms", "block", "--paths", "1", "--length", "2"),
        *("--tokens", "3", "--device", "cpu"),
        *("--json", "{}/a.json", "--figure", "{}/b.png"),
    ),
    "cascade": (
        *("--limit", "2", "--cascades", "opt", "--threshold", "0.1", "--length", "2"),
        *("--device", "cpu", "--json", "{}/a.json"),
    ),
    "capture": ("{}/mine.safetensors", "--limit", "2", "--tokens", "2", "--device", "cpu"),
}
"""Arguments by command; {} is the folder to write to."""

NEEDS_TORCH = frozenset({"decode", "cascade", "capture"})

OLD = b"what was there before"


def arguments(command: str, folder: Path) -> list[str]:
    """Return the arguments of the command line."""
    return [command, *(word.format(folder) for word in WRITING[command])]


def outputs(command: str, folder: Path) -> list[Path]:
    """Return the files that the command writes."""
    words = WRITING[command]
    return [Path(word.format(folder)) for word in words if word.startswith("{}")]


def check_whole(path: Path) -> None:
    """Raise unless the file has its previous content or the complete output of a command."""
    content = path.read_bytes()
    if content == OLD:
        return
    assert content, f"{path.name} is empty"
    if path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".png":
        assert content.startswith(b"\x89PNG") and content.endswith(b"IEND\xaeB`\x82")
    elif path.suffix == ".html":
        assert content.startswith(b"<!doctype html>") and content.endswith(b"</html>\n")
    elif path.suffix == ".mps":
        assert content.startswith(b"* ") and content.endswith(b"ENDATA\n")
    else:
        assert len(captures.load(path)) > 0
