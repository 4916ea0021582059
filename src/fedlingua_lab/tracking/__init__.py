"""Report runs to experiment trackers from a separate process that reads the run folder: no tracker can change or end a run."""
