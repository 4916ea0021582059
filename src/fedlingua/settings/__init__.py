"""A run's settings: keys, checks, methods, experiment files."""
