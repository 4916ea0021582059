"""What a noised release costs in privacy, by Google's dp-accounting."""


def signature_epsilon(noise: float, delta: float, signatures: int = 1) -> float:
    """Epsilon of so many private signatures together: a sum over sentences each, of norm C at most, plus noise of deviation noise x C.

    Neighbours differ in one training sentence, replaced by another: what it added goes and something else comes, so the sum moves by 2 C at
    most, and the mechanism is that of a noise multiplier of noise / 2; of k signatures, with noise of their own, the sensitivity is sqrt(k)
    times as large. The number of sentences is the same for both, and told anyway.
    """
    # A second of import that only a run with private signatures needs.
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(noise / 2 / signatures**0.5, delta))
