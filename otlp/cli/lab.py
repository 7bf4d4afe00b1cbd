"""``otlp lab``: commands of the laboratory, which is loaded here by name and nowhere else."""

from importlib import import_module

command = import_module("otlp.lab.commands").command
