"""A file of somebody's own as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of_file(file: Path) -> ModuleType:
    """Load one file, and not the package that it lies in, by a name that no other module has.

    Raises
    ------
    OSError
        If there is no such file.
    """
    name = f"_audited_{file.stem}"
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
