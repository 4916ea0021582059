"""Reports of runs and suites, made only from their files: an HTML page each, and the table of scores before and after training."""
