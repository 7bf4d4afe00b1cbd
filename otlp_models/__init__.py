"""Weights of the small models that `otlp` decodes with when it is given no others.

Each folder is one in the format of transformers, with a card of its own: ``target`` and ``draft``
are a pair trained on Python's standard library, and ``smollm2-draft`` is a draft for
SmolLM2-135M-Instruct.  The package is a distribution of its own, `otlp-models`, so that who solves
problems does not download them.
"""
