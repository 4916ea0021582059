"""Federation files as tests want them."""

import re
from pathlib import Path

from fedlingua.corpora.sites import Federation, read_federation

SITE = '[[site]]\nname = "court"\ndirection = "de-en"\ntsv = "de-en.tsv"\n'
REGISTER = '[[site]]\nname = "court"\ndirection = "de-fr"\nphrasebook = "court"\n'

SPLIT = "[split]\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n"


def phrasebook_federation(name: str, **sites: tuple[str, int]) -> str:
    """Half of a site's sentences to train on, a quarter each for dev and test.

    sites: register, which names the site, -> (direction, sentences).
    """
    tables = [
        f'[[site]]\nname = "{register}"\ndirection = "{direction}"\nphrasebook = "{register}"\nsentences = {sentences}\n'
        for register, (direction, sentences) in sites.items()
    ]
    return "".join([f'name = "{name}"\n', SPLIT, *tables])


TWO_SITES = phrasebook_federation("two", hospital=("de-fr", 40), court=("pl-es", 32))
TWO_TEXTS = re.sub(r'direction = "(..)-.."', r'language = "\1"', TWO_SITES)
"""The same registers, each in the language that its site translates from."""
FOUR_SITES = phrasebook_federation("four", hospital=("de-fr", 48), court=("nl-es", 40), school=("pl-sv", 44), bank=("cs-de", 36))
FOUR_TEXTS = re.sub(r'direction = "(..)-.."', r'language = "\1"', FOUR_SITES)
"""As TWO_TEXTS."""
SITES = ["hospital", "court", "school", "bank"]
"""Of FOUR_SITES."""


def federation(folder: Path, text: str) -> Federation:
    """What a federation file says; its text lies in <folder>/data."""
    path = folder / "federation.toml"
    path.write_text(text)
    return read_federation(path, folder / "data")
