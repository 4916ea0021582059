"""Find a backbone's files in a local folder, or download them from the hub at a pinned revision, that of its reviewed commit."""

from pathlib import Path

from fedlingua.common.errors import BackboneError

PUBLISHED = {
    "answerdotai/ModernBERT-base": ("8949b909ec900327062f0ebf497f51aef5e6f0c8", "apache-2.0"),
    "FacebookAI/xlm-roberta-base": ("e73636d4f797dec63c3081bb6ed5c7b0bb3f2089", "mit"),
    "facebook/m2m100_418M": ("55c2e61bbf05dfb8d7abccdc3fae6fc8512fd636", "mit"),
    "facebook/mbart-large-50-many-to-many-mmt": ("e30b6cb8eb0d43a0b73cab73c7676b9863223a30", ""),
    "facebook/nllb-200-distilled-1.3B": ("7be3e24664b38ce1cac29b8aeed6911aa0cf0576", "cc-by-nc-4.0"),
    "facebook/nllb-200-distilled-600M": ("f8d333a098d19b4fd9a8b18f94170487ad3f821d", "cc-by-nc-4.0"),
    "google/madlad400-3b-mt": ("fa184c675da0b5c9e1c8694fccd4e12e2d422094", "apache-2.0"),
    "Helsinki-NLP/opus-mt-de-en": ("1a922f3b32a8e809e17a47d4b32142d8105924e5", "apache-2.0"),
    "microsoft/mdeberta-v3-base": ("a0484667b22365f84929a935b5e50a51f71f159d", "mit"),
    "Qwen/Qwen3-0.6B": ("c1899de289a04d12100db370d81485cdf75e47ca", "apache-2.0"),
}
"""Hub id -> pinned revision, and licence according to the repository's card; "" if it names none."""
PINNED_REVISIONS = {name: revision for name, (revision, _) in PUBLISHED.items()}
STUDENTS = ("student-en-pt", "student-pt-en")
"""What `fedlingua backbone fetch` makes of a wheel whose hash is pinned."""
LICENCES = {name: licence for name, (_, licence) in PUBLISHED.items() if licence}


SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED = "pytorch_model.bin"
KEPT = {".json", ".model", ".spm", ".txt", ".jinja"}
"""File endings of a backbone's configuration and tokenizer."""


def published_or_local(name: str, revision: str = "") -> Path:
    """Return the local directory of a backbone; download a hub id into the hub's cache.

    Raises:
        BackboneError: the name is neither a directory nor a reachable hub id with a pinned revision.
    """
    place = local_or_pinned(name, revision)
    if isinstance(place, Path):
        return place
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return _download(name, place)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise BackboneError(
            f"backbone = {name!r} at {place} cannot be downloaded ({error}); give a local directory instead"
        ) from error


def local_or_pinned(name: str, revision: str = "") -> Path | str:
    """Return a local directory, or the revision to download of a hub id; raise BackboneError if the name is neither."""
    local = Path(name).expanduser()
    if local.is_dir():
        return local.resolve()
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise BackboneError(
            f"backbone = {name!r}: there is no such directory, and no recipe of this name was trained here (`fedlingua pretrain`); "
            "a student is there after `fedlingua backbone fetch`, a hub id looks like 'facebook/m2m100_418M', and 'demo' is built in"
        )
    pinned = revision or PINNED_REVISIONS.get(name)
    if pinned is None:
        raise BackboneError(
            f"backbone = {name!r} has no pinned revision; give backbone-revision, the commit of the hub repository to use"
        )
    return pinned


def _download(name: str, revision: str) -> Path:
    """Download a hub repository into the hub's cache, with pytorch_model.bin only if it has no safetensors."""
    from huggingface_hub import snapshot_download

    patterns = [*(f"*{ending}" for ending in sorted(KEPT)), "*.safetensors"]
    directory = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    if has_safetensors(directory):
        return directory
    return Path(snapshot_download(name, revision=revision, allow_patterns=[PICKLED]))


def has_safetensors(directory: Path) -> bool:
    """Return whether the weights in `directory` are safetensors, in one file or in several with an index."""
    return any((directory / name).is_file() for name in SAFETENSORS)
