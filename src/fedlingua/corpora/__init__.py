"""Parallel text: reading, cleaning, splitting, and assigning it to sites."""
