"""What a noised release costs in privacy, by Google's dp-accounting."""


def gaussian_epsilon(noise: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism: the noise's standard deviation is `noise` times the sum's sensitivity.

    One release of a sum to which every sentence adds a vector no longer than the sensitivity; neighbours differ by one sentence's
    presence (privacy loss distribution: Balle & Wang 2018 give the same, exact value).
    """
    # Half a second of import that only a run with private signatures needs.
    from dp_accounting.pld import privacy_loss_distribution

    released = privacy_loss_distribution.from_gaussian_mechanism(noise)
    return float(released.get_epsilon_for_delta(delta))
