"""Prepare corpora for training, and write them."""
