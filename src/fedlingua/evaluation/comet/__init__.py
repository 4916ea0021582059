"""COMET scores by unbabel-comet. Its dependencies conflict with ours, so it runs as a process in its own environment."""
