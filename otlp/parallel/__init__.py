"""Many problems at once, on every core of a machine or on a cluster; the journal of long work."""
