"""The laboratory: experiments around the library, with no promise but honesty.

What stands here measures, tries and compares: names, formats and commands may change or go with any
version.  Nothing outside imports it; its commands are ``otlp lab ...``.

- `design`: which tree to draft for a budget of nodes; `tuning`: which setting decodes fastest.
- `engines`, `servers`: audits of other people's verifiers, and of texts of running servers.
- `list_sampling`, `one_stream`, `cascade_baselines`: what others do, to be compared with.
- `frequent_drafts`: what writes drafts such as `smollm2-draft`.
- `laws`: laws of our rules on larger models than `round_law` lists, and the LP of a drafting.
- `generation`: the hook of transformers' ``generate``.
"""
