"""Old names say where things are now; what is named there is there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

import otlp
from otlp.moved import MOVED, NAMES
from tests.otlp.cli.command import refused


@pytest.mark.parametrize("old", MOVED)
def test_an_import_of_a_module_that_moved_says_where(old: str) -> None:
    if old.startswith("otlp.batched"):
        pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    with pytest.raises(ModuleNotFoundError, match=MOVED[old]):
        import_module(old)
    for new in MOVED[old].split(",")[0].split(" and "):
        assert find_spec(new)


@pytest.mark.parametrize("module", NAMES)
def test_a_name_that_moved_says_where(module: str) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    there = import_module(module)
    for old, new in NAMES[module].items():
        with pytest.raises(AttributeError, match=f"no attribute '{old}': it is {new} now"):
            getattr(there, old)
        home, name = new.split(",")[0].rsplit(".", 1)
        assert hasattr(import_module(home), name)


def test_a_name_that_never_was() -> None:
    with pytest.raises(AttributeError, match=r"^module 'otlp' has no attribute 'solves'$"):
        getattr(otlp, "solv" + "es")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'otlp\.solves'$"):
        import_module("otlp.solves")


@pytest.mark.parametrize("command", ["design", "tune", "audit-engine", "audit-server"])
def test_a_command_that_moved_says_where(command: str) -> None:
    assert f"It is 'otlp lab {command}' now" in refused(command)
