"""Write words as a sentence: spaces, a capital first letter, a final mark."""


def sentence(*parts: str, mark: str = ".", opening: str = "") -> str:
    """Join the non-empty parts into one written sentence."""
    text = join(*parts)
    return f"{opening}{text[0].upper()}{text[1:]}{mark}"


def join(*parts: str) -> str:
    """Join the non-empty parts with spaces."""
    return " ".join(part for part in parts if part)
