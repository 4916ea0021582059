"""The checks that a reply must pass before it counts."""
