"""Documentation pages and source files with examples, and their requirements."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for package in ("otlp", "otlp_lab")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
}


def needs_missing_package(name: str) -> bool:
    """Return whether a module needs torch or transformers and the package is not installed."""
    needs = {
        "otlp.batched": "torch",
        "otlp.device": "transformers",
        "otlp_lab.generation.generating": "transformers",
        "otlp.decode.models.frequent_draft": "transformers",
        "otlp.decode.models.skipped_layers": "transformers",
    }
    return any(
        name.startswith(part) and importlib.util.find_spec(package) is None
        for part, package in needs.items()
    )
