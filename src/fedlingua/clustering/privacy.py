"""The privacy cost of noised signatures, by Google's dp-accounting."""


def signature_epsilon(noise: float, delta: float, signatures: int = 1) -> float:
    """Return the epsilon of releasing `signatures` private signatures together.

    A signature is a sum over sentences of vectors with norm at most C, plus Gaussian noise of standard deviation noise x C. Neighbouring
    texts differ in one sentence, which is replaced, so the sum changes by at most 2 C: the noise multiplier is noise / 2. For k signatures
    with independent noise, the sensitivity is sqrt(k) times as large. The number of sentences is not secret.
    """
    # Imported here: the import takes a second, and only runs with private signatures need it.
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(noise / 2 / signatures**0.5, delta))
