"""COMET scores by unbabel-comet, whose dependencies exclude ours: in an environment of its own, as a process."""
