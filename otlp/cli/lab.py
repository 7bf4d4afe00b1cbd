"""``otlp lab``: commands of the laboratory, which is loaded here by name and nowhere else."""

from importlib import import_module
from importlib.util import find_spec

import click

if find_spec("otlp_lab") is None:
    raise click.UsageError(
        "the laboratory is not installed: pip install otlp-lab, or in a clone of otlp: "
        "pip install ./otlp_lab"
    )

command = import_module("otlp_lab.commands").command
