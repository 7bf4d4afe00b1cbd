"""Experiments around the library, without stability guarantees.

Names, formats and commands may change or be removed with any version.  The library does not import
this package; its commands are ``otlp lab ...``.

- `design`: draft trees for a node budget; `tuning`: the fastest setting for a pair of models.
- `engines`, `servers`: audits of verifiers of inference engines and of texts of running servers.
- `list_sampling`, `one_stream`, `cascade_baselines`: published methods for comparison.
- `frequent_drafts`: writing of draft models such as `smollm2-draft`.
- `laws`: laws of rounds on models too large for `round_law`, and the LP of a drafting.
- `generation`: ``custom_generate`` for transformers' ``generate``.
"""
