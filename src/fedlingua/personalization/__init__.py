"""A site's own model after a run: further local training of a round's model, and mixtures of both (Manoel et al. 2022, §2.4)."""
