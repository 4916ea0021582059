"""The run folder, its checkpoints, and the clusters planned from a run's settings."""
