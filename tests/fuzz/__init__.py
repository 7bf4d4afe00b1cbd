"""Random problems checked against an oracle; see tests/reliability/test_fuzzing.py."""
