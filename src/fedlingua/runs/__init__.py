"""The run folder, its checkpoints, and what follows from a run's settings."""
