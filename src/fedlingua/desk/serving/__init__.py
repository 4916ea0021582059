"""Serve a run's models over HTTP: one backbone in memory (two for ensembles), sites' tensors loaded on request, and a page to type in."""
