"""The strategies: one paper, one file."""
