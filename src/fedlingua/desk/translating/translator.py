"""A trained model that translates: a site's own, or the clusters' for any direction."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedlingua.backbones.layouts import most_tokens
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.common.visible import trimmed
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import TrainedModel, check_translates
from fedlingua.exchange.tensors import Tensors, check_tensors

if TYPE_CHECKING:  # options are checked without loading torch
    from fedlingua.evaluation.ensemble import Ensemble


class Translator:
    """A loaded backbone with the tensors of one model."""

    def __init__(self, model: TrainedModel, decoding: Decoding | None = None, backbone: str = "") -> None:
        """Load a model's backbone and tensors.

        Args:
            model: the model to translate with, until `use` takes another of the same run.
            backbone: where the backbone lies, if not where its name says.

        Raises:
            RunError: The model does not translate, its tensors are gone, or the backbone has changed since.
            BackboneError: The backbone cannot be loaded, or does not know the language.
            ConfigError: An option of `decoding` is out of range. CorpusError: The glossary has a mistake.
        """
        decoding = decoding or Decoding()
        decoding.check()
        check_translates(model.settings, model.owner)
        both = (model, *model.second[:1]) if model.second else (model,)
        # Missing tensors are reported before the backbone loads.
        tensors = {each.key: each.load() for each in both if each.load}
        import torch  # after all that can be refused without it

        from fedlingua.desk.translating.terms import Terms

        if decoding.threads:
            torch.set_num_threads(decoding.threads)
        device = decoding.device or (model.settings.device if torch.cuda.is_available() else "cpu")
        changes: dict[str, Any] = {
            "device": device,
            "frozen_bits": model.settings.frozen_bits if device == model.settings.device else 0,
        }
        self.settings, self.trainable = replace(model.settings, **changes), model.trainable(backbone, **changes)
        self.beam = decoding.beam or self.settings.beam
        self.max_tokens = decoding.max_tokens or self.settings.max_tokens
        self.max_new_tokens = decoding.max_new_tokens or self.settings.max_decode_tokens
        self.most = decoding.most
        positions = most_tokens(self.trainable.model.config)
        for option, value in (("max-tokens", self.max_tokens), ("max-decode-tokens", self.max_new_tokens)):
            if positions is not None and value > positions:
                raise ConfigError(
                    f"--{option} {value}: backbone = {self.settings.backbone!r} has positions for {positions} tokens; give fewer"
                )
        self._key: tuple[str, ...] = ()
        self._backbone = backbone or self.settings.backbone
        self._ensemble: Ensemble | None = None
        self._second_key: tuple[str, ...] = ()
        self.use(model, lambda each: tensors[each.key])
        self.terms = Terms.read(decoding.terms, self.direction, self.trainable.backbone.codec) if decoding.terms else None

    def use(self, model: TrainedModel, load: Callable[[TrainedModel], Tensors]) -> None:
        """Switch to another model of the run. load: reads its tensors; called only if they are not in use already.

        Raises:
            BackboneError: the backbone does not know the language. ExchangeError: the tensors do not fit it.
        """
        from fedlingua.exchange.tensor_sets import write_tensors

        self.trainable.backbone.codec.check([model.direction])
        if model.load is not None and model.key != self._key:
            self._key = ()  # if loading fails, the half-written tensors belong to no model
            write_tensors(self.trainable.model, check_tensors(load(model), self.trainable.trained))
            self._key = model.key
        if model.second:
            self._use_second(*model.second, load)
        self.model = model

    def _use_second(self, second: TrainedModel, share: float, load: Callable[[TrainedModel], Tensors]) -> None:
        """Load the second model of an ensemble, which stays loaded beside the first one."""
        from fedlingua.evaluation.ensemble import Ensemble
        from fedlingua.exchange.tensor_sets import write_tensors

        if second.key != self._second_key:
            self._second_key, tensors = (), check_tensors(load(second), self.trainable.trained)
            if self._ensemble is None:
                loaded = self.trainable.second(replace(self.settings, backbone=self._backbone), tensors)
                codec = self.trainable.backbone.codec
                self._ensemble = Ensemble(loaded, share, codec, second.direction, self.max_tokens)
            else:
                write_tensors(self._ensemble.second, tensors)
            self._second_key = second.key
        assert self._ensemble is not None
        self._ensemble = replace(self._ensemble, share=share, direction=second.direction)

    @property
    def answering(self) -> str:
        """The direction and whose model translates, in words."""
        return f"{self.direction}: {self.model.owner}"

    def about_terms(self) -> list[str]:
        """Return which lines of the glossary are not used, and how many of its terms have come out right so far."""
        if self.terms is None:
            return []
        count = self.terms.count
        outcome = f"terms: {count.right:,} of {count.asked:,} came out right; {count.without:,} without the glossary"
        return [*self.terms.remarks, outcome]

    @property
    def direction(self) -> Direction:
        return self.model.direction

    def is_cut(self, sentences: list[str]) -> list[bool]:
        """Return which sentences have more pieces than `max_tokens` leaves room for, so that they would be cut."""
        codec, texts = self.trainable.backbone.codec, [*map(trimmed, sentences)]
        room = codec.room(self.direction, self.max_tokens)
        return [len(pieces) > room for pieces in codec.pieces(texts)]

    def translate(self, sentences: list[str]) -> list[str]:
        """Return one translation per sentence, in order, each on one line; an empty sentence stays empty."""
        from fedlingua.evaluation.decode import translate

        def translated(some: list[str], guides: Sequence[Any]) -> list[str]:
            model, codec = self.trainable.model, self.trainable.backbone.codec
            search = (self.beam, self.max_tokens, self.max_new_tokens, self.most)
            if self.model.second and self._ensemble:
                guides = [self._ensemble, *guides]
            return translate(model, codec, some, self.direction, *search, guides, self.settings.no_repeat_ngram)

        with self.trainable.as_base() if self.model.load is None else nullcontext():
            return self.terms.translate(sentences, translated) if self.terms else translated(sentences, [])
