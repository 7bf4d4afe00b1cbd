"""Random problems against an oracle of their own; see tests/reliability/test_fuzzing.py."""
