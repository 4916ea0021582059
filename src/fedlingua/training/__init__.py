"""Local training: examples, batches, losses and the training loop."""
