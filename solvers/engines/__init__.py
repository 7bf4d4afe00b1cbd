"""Maximum-flow engines: from a network to its arc flows.  One file an engine."""
