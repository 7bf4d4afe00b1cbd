"""Tests; `tests.instances` contains shared problems and a checker."""
