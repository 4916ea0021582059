"""Site files as tests want them."""

ROOMY = """[limits]
settings = "within-limits"
tensor-sets = []
min-train = 1
min-dev = 1
min-test = 1
min-steps = 1
min-batch = 1
"""
"""For sites that are smaller than any institution's, and runs that nobody approves."""
