"""The setting that decodes most tokens a second: predicted by text renewal, then timed."""

from otlp_lab.tuning.tuned import Tuned

__all__ = ["Tuned"]
