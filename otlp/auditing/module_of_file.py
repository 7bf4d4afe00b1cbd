"""Import of a user's file as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of_file(file: Path) -> ModuleType:
    """Import a file as a module with a unique name, without importing its package.

    Raises
    ------
    OSError
        If the file does not exist.
    """
    name = f"_audited_{file.stem}"
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
