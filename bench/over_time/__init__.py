"""What asv runs to compare two commits."""
