"""The settings of a run: keys, checks, methods, experiment files."""
