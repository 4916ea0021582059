"""Suites: rows of settings times seeds, what of them is run, and the table that their runs add up to."""
