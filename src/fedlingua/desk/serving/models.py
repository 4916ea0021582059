"""All variants of a run on one backbone, which holds the tensors used last; those used before stay in memory, up to a limit."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from fedlingua.common.errors import ConfigError, FedlinguaError
from fedlingua.common.languages import Direction, broader, plain_code, script_of
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels, TrainedModel
from fedlingua.desk.translating.translator import Translator
from fedlingua.exchange.tensors import Tensors

if TYPE_CHECKING:  # errors at the start are reported before torch is imported
    from fedlingua.desk.translating.terms import Terms

KEPT_BYTES = 1 << 30
"""Most bytes of recently used tensors in memory: thousands of adapters, or the last full model alone."""


class Models:
    """A run's variants and their translations. Only one thread may call `translate` and `too_long`; any may call the rest."""

    def __init__(self, run: RunModels, decoding: Decoding) -> None:
        """Raises RunError or BackboneError if the run has no model to serve, ConfigError if decoding has impossible options."""
        self.run = run
        self._loaded: OrderedDict[tuple[str, ...], Tensors] = OrderedDict()
        self.sites = {name: run.of_site(name) for name in run.sites if run.is_here(name)}
        first = next(iter(self.sites.values()), None) or run.of_site(next(iter(run.sites)))
        self.translator = Translator(first, replace(decoding, terms=None))
        self._terms = dict(self._read_terms(decoding.terms)) if decoding.terms else {}
        held = {code for direction in run.sites.values() for code in direction.sides}
        self.languages = sorted(held | self.translator.trainable.backbone.codec.language_ids.keys())
        self.of_direction = lru_cache(maxsize=4096)(self._of_direction)

    @property
    def remarks(self) -> list[str]:
        """Which lines of the glossary are not used, and in which direction."""
        return [f"{direction}: {remark}" for direction, terms in self._terms.items() for remark in terms.remarks]

    def _of_direction(self, direction: Direction) -> TrainedModel:
        """Return the model of the clusters that answer for a direction; raise a FedlinguaError if none do."""
        self.translator.trainable.backbone.codec.check([direction])
        return self.run.of_direction(direction)

    def directions(self) -> list[TrainedModel]:
        """Return a model for every direction between the backbone's languages that clusters can answer."""
        answered = []
        for sides in permutations(self.languages, 2):
            with suppress(FedlinguaError):  # the run has no relative of one of the two languages
                answered.append(self.of_direction(Direction(*sides)))
        return answered

    def _read_terms(self, file: Path) -> Iterator[tuple[Direction, "Terms"]]:
        """Yield the terms of a glossary, in each of its two directions that the run translates; raise ConfigError if it does neither."""
        from fedlingua.desk.translating.glossary import named_direction
        from fedlingua.desk.translating.terms import Terms

        named = named_direction(file)
        if named is None:
            raise ConfigError(f"--terms {file}: serve answers many directions; name the file after its own, as terms.de-en.tsv")
        if not (translated := [direction for direction in (named, named.reverse) if self._translates(direction)]):
            raise ConfigError(
                f"--terms {file}: the run translates neither {named} nor {named.reverse}; give a glossary of languages that it translates"
            )
        for direction in translated:
            yield direction, Terms.read(file, direction, self.translator.trainable.backbone.codec)

    def add_terms(self, file: Path, direction: Direction) -> None:
        """Use a glossary, whose name need not say its direction, in this one."""
        from fedlingua.desk.translating.terms import Terms

        if direction not in self._terms:
            self._terms[direction] = Terms.read(file, direction, self.translator.trainable.backbone.codec)

    def _terms_of(self, direction: Direction) -> "Terms | None":
        """Return the terms of a direction, also those of its languages' more general codes: for de-DE--fr those of de-fr."""
        return next((terms for held, terms in self._terms.items() if _goes_with(held, direction)), None)

    def _translates(self, direction: Direction) -> bool:
        """Return whether a site's model or clusters answer for a direction."""
        with suppress(FedlinguaError):
            return bool(self._of_direction(direction))
        return any(_goes_with(direction, model.direction) for model in self.sites.values())

    def translate(self, variant: TrainedModel, sentences: list[str]) -> list[str]:
        """Return one translation for each sentence, exactly as `fedlingua translate` writes it."""
        self.translator.use(variant, self._load)
        self.translator.terms = self._terms_of(variant.direction)
        return self.translator.translate(sentences)

    def too_long(self, variant: TrainedModel, sentences: list[str]) -> int | None:
        """Return the number, from 1, of the first sentence with more tokens than the model reads; None if there is none."""
        self.translator.use(variant, self._load)
        return next((number for number, cut in enumerate(self.translator.is_cut(sentences), start=1) if cut), None)

    def _load(self, variant: TrainedModel) -> Tensors:
        if variant.key not in self._loaded:
            assert variant.load is not None
            self._loaded[variant.key] = variant.load()
        self._loaded.move_to_end(variant.key)
        sizes = [sum(array.nbytes for array in tensors.values()) for tensors in self._loaded.values()]
        while len(sizes) > 1 and sum(sizes) > KEPT_BYTES:
            self._loaded.popitem(last=False)
            del sizes[0]
        return self._loaded[variant.key]


def _goes_with(held: Direction, asked: Direction) -> bool:
    """Return whether terms of a direction go with text of another: never if a script differs, as of zh and zh-Hant."""
    sides = zip(held.sides, asked.sides, strict=True)
    return all(own in (*broader(code), plain_code(code)) and script_of(own) == script_of(code) for own, code in sides)
