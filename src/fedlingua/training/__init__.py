"""Batches, objectives, and the one local training loop."""
