"""``otlp lab``: commands of the laboratory, which is loaded here by name and nowhere else."""

from importlib import import_module

from otlp.errors import EngineNotFoundError

try:
    command = import_module("otlp_lab.commands").command
except ModuleNotFoundError as error:
    if error.name != "otlp_lab":
        raise
    raise EngineNotFoundError(
        "the laboratory is not installed: pip install otlp-lab, or in a clone of otlp: "
        "pip install ./otlp_lab"
    ) from None
