"""Engines: other people's code for linear programs and maximum flows.  One file an engine.

They raise `TimeoutError` at the deadline (`otlp.timing`), `RuntimeError` when they fail and
`EngineNotFoundError` when they are not installed.
"""
