"""What a run can be told: its keys, their checks, methods, experiment files."""
