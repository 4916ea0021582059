"""Suites: rows of settings, each run under several seeds, and the table of their results."""
