"""A run's models over HTTP: one backbone in memory, a site's tensors put in as they are asked for, a page to type in."""
