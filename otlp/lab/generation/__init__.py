"""Speculative decoding inside ``model.generate`` of transformers."""

from otlp.lab.generation.generating import generate

__all__ = ["generate"]
