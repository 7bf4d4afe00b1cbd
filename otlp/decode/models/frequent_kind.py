"""How a folder says that it holds a draft that reads its target's embedding; without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

KIND = "otlp-frequent-draft"
"""The `model_type` in config.json that says so."""


def is_frequent_draft(folder: str | Path) -> bool:
    """Whether the folder's config.json says that it holds such a draft."""
    try:
        found = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("model_type") == KIND
