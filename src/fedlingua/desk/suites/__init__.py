"""Suites: rows of settings times seeds, their runs, and the table of the results."""
