"""Tests; `tests.instances` holds the problems and the checker that they share."""
