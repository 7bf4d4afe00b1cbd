"""Laws of rounds on models too large to enumerate draft trees, and the LP bound of a drafting."""
