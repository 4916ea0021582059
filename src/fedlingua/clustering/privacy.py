"""The privacy cost of noised signatures, by Google's dp-accounting."""


def signature_epsilon(noise: float, delta: float, signatures: int = 1) -> float:
    """Return the epsilon of `signatures` private signatures together. Each is a sum over sentences, which add vectors of norm C at most,
    plus Gaussian noise of standard deviation noise x C.

    Neighbouring texts differ in one sentence, which is replaced by another, so the sum moves by 2 C at most, as with a noise multiplier of
    noise / 2. For k signatures, each with its own noise, the sensitivity is sqrt(k) times as large. The number of sentences is not secret.
    """
    # A second of import that only a run with private signatures needs.
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(noise / 2 / signatures**0.5, delta))
