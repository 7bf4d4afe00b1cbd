"""Laws of rounds on larger models than can be listed tree by tree, and what no rule exceeds."""
