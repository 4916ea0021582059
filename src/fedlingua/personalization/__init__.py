"""A site's own model after a run: local training from a round's model, and mixtures of the two (Manoel et al. 2022, §2.4)."""
