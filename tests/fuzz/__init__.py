"""Random problems against an oracle of their own: ``python -m tests.fuzz --seconds 60``."""
