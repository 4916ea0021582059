"""Compare runs: how they differ, whether by chance, at which sites, and at what cost."""
