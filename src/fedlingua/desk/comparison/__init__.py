"""Compare runs: what differs, whether by chance, for which sites, and at what cost."""
