"""Runs beside each other: what differs, whether by chance, for whom, and at what price."""
