"""What a site leaves out in a run: the digests of its leaking sentences, kept in its folder of the run from the comparison on."""

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedlingua.common.errors import ExchangeError
from fedlingua.corpora.overlap import Digests, key_check, without_leaks
from fedlingua.corpora.texts import SiteText

FILE = "leaks.safetensors"
_DIGESTS, _KEY = "digests", "key"


def keep_leaks(folder: Path, leaking: Digests, key: bytes) -> None:
    """Write the file, whole or not at all. leaking: (sentences,) uint64."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{FILE}.{os.getpid()}"
    save_file({_DIGESTS: leaking}, aside, {_KEY: key_check(key)})
    os.replace(aside, folder / FILE)


def left_of(texts: Mapping[str, SiteText], folder: Path, key: bytes) -> dict[str, SiteText]:
    """A site's texts without what the folder's file says.

    Raises:
        ExchangeError: there is no such file, it is damaged, or it was made under another key; in words that name no place.
    """
    try:
        with safe_open(folder / FILE, "numpy") as file:
            made_under, leaking = (file.metadata() or {}).get(_KEY), file.get_tensor(_DIGESTS)
    except (OSError, SafetensorError) as error:
        raise ExchangeError(
            f"this site does not have what it leaves out in this run ({type(error).__name__} of {FILE}); the comparison of the "
            "sites' text comes before the first round: begin the run anew"
        ) from error
    if made_under != key_check(key):
        raise ExchangeError(
            "this site's overlap key is not the one that the sites' text was compared under when the run began; put that one back, or "
            "begin the run anew"
        )
    return {name: without_leaks(text, leaking, key) for name, text in texts.items()}
