"""Corpora made ready and written."""
