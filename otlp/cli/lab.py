"""``otlp lab``: commands of the package `otlp_lab`, which only this module imports."""

from importlib import import_module
from importlib.util import find_spec

import click

if find_spec("otlp_lab") is None:
    raise click.UsageError(
        "otlp-lab is not installed: pip install otlp-lab, or in a clone of otlp: "
        "pip install ./otlp_lab"
    )

command = import_module("otlp_lab.commands").command
