"""Decoding and scores."""
