"""Parallel text: read, cleaned, split, given to sites."""
