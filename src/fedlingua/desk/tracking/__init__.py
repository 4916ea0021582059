"""Runs told to experiment trackers, by a process of its own that reads the run folder: no tracker can change a run, or end it."""
