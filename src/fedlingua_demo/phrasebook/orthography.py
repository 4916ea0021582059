"""Words written as a sentence: spaces, first capital, final mark."""


def sentence(*parts: str, mark: str = ".", opening: str = "") -> str:
    """The parts that are not empty, as one written sentence."""
    text = join(*parts)
    return f"{opening}{text[0].upper()}{text[1:]}{mark}"


def join(*parts: str) -> str:
    """The parts that are not empty, a space between each."""
    return " ".join(part for part in parts if part)
