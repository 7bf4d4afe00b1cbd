"""Check whether a folder holds a frequent-token draft; does not import PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

KIND = "otlp-frequent-draft"
"""`model_type` in the config.json of a frequent-token draft."""


def is_frequent_draft(folder: str | Path) -> bool:
    """Return whether the folder's config.json has this `model_type`."""
    try:
        found = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("model_type") == KIND
