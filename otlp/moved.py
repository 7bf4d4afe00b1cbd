"""Names that are elsewhere now: an import of an old one says where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn

MOVED = {
    "otlp.auditing.engines": "otlp.lab.engines",
    "otlp.auditing.servers": "otlp.lab.servers",
    "otlp.batched.trees": "otlp.device.verifying, on a CPU",
    "otlp.decode.cascade_baselines": "otlp.lab.cascade_baselines",
    "otlp.decode.design": "otlp.lab.design",
    "otlp.decode.drafting.adaptive": "otlp.lab.design.adaptive",
    "otlp.decode.generated_row": "otlp.lab.generation.generated_row",
    "otlp.decode.generating": "otlp.lab.generation.generating",
    "otlp.decode.generation_options": "otlp.lab.generation.generation_options",
    "otlp.decode.laws.drafting_lp": "otlp.lab.laws.drafting_lp",
    "otlp.decode.laws.prefix_laws": "otlp.lab.laws.prefix_laws",
    "otlp.decode.laws.slot_laws": "otlp.lab.laws.slot_laws",
    "otlp.decode.laws.written_program": "otlp.lab.laws.written_program",
    "otlp.decode.one_stream": "otlp.lab.one_stream",
    "otlp.decode.tuned": "otlp.lab.tuning.tuned",
    "otlp.decode.verification.list_sampling": "otlp.lab.list_sampling",
    "otlp.decode.verification.tournament_slots": "otlp.lab.laws.tournament_slots",
    "otlp.studies.loop_costs": "otlp.lab.tuning.loop_costs",
    "otlp.studies.loop_setting": "otlp.lab.tuning.loop_setting",
    "otlp.studies.round_costs": "otlp.lab.tuning.round_costs",
    "otlp.studies.timed_loop": "otlp.studies.timed and otlp.lab.tuning.side_by_side",
    "otlp.studies.tuning": "otlp.lab.tuning.prediction",
    "otlp.studies.written_texts": "otlp.lab.design.written_texts",
}
"""Modules by their old names."""

NAMES = {
    "otlp.batched": {
        "TreeRound": "otlp.device.verifying.TreeRound",
        "verify_tree": "otlp.device.verify_on_cpu, which verifies prefix trees",
    },
    "otlp.decode": {
        "ListRun": "otlp.lab.one_stream.ListRun",
        "ListSampling": "otlp.lab.list_sampling.ListSampling",
        "Tuned": "otlp.lab.tuning.Tuned",
        "adaptive_branching": "otlp.lab.design.adaptive.adaptive_branching",
        "adaptive_depth": "otlp.lab.design.adaptive.adaptive_depth",
        "generate": "otlp.lab.generation.generate",
        "list_decoding": "otlp.lab.one_stream.list_decoding",
        "mixed_shape": "otlp.lab.design.mixed_nodes.mixed_shape",
    },
}
"""Names of modules that are there."""


def elsewhere(module: str, name: str) -> NoReturn:
    """Say where a name is now, if it moved; what a module's ``__getattr__`` ends with.

    Raises
    ------
    AttributeError
    """
    where = NAMES.get(module, {}).get(name)
    now = "" if where is None else f": it is {where} now"
    raise AttributeError(f"module {module!r} has no attribute {name!r}{now}")


class _Moved(MetaPathFinder):
    """Asked last, for modules that nobody found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name in MOVED:
            raise ModuleNotFoundError(f"{name} is {MOVED[name]} now", name=name)


def tell() -> None:
    """Let imports of old names say where the modules are."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
