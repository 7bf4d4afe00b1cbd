"""Speculative decoding inside ``model.generate`` of transformers."""

from otlp_lab.generation.generating import generate

__all__ = ["generate"]
