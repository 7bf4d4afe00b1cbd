"""Search for the setting with the most tokens per second: predicted by text renewal, then timed."""

from otlp_lab.tuning.tuned import Tuned

__all__ = ["Tuned"]
