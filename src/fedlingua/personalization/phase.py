"""A run's last phase at a site: train a model alone, train the federation's further, interpolate, compare on dev text, choose one.

None of its tensors leave the site. Each model is stored when it is trained, so a phase that was interrupted ends with the same bytes.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.common.errors import MemoryRunsOutError
from fedlingua.common.files import json_hash, json_text, replace_text
from fedlingua.evaluation.base_results import computed_by
from fedlingua.evaluation.text_metrics import Counts
from fedlingua.exchange.delivery import Second
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import NamedTensors, Tensors, digest_of, save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.personalization import alone, choice
from fedlingua.personalization.choice import Choice, DevResult
from fedlingua.personalization.interpolation import interpolated_by_part, search_alphas
from fedlingua.personalization.passes import DIVERGED, Trained, train_until_dev_stops
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Example
from fedlingua.training.head import HeadUse
from fedlingua.training.objective import token_nlls_of_each

FOLDER, FILE = "choice", "choice.json"
CHOOSING = 0.8
"""The share of the phase that choosing is, most of it training; the rest is scoring. For progress alone."""
TRAINED_ALONE = {choice.ALONE: "alone", choice.SECOND_ALONE: "a second model alone"}
"""Models trained on the site's text alone, with other draws -> in words."""


@dataclass(frozen=True)
class SiteModel:
    """A site's model and text, as the phase needs them.

    Attributes:
        settings: The run's settings as they take effect at the site.
        dev: The examples on which losses are measured.
        train: Trains the current model as a round does, given settings, seed, (pass, number of passes) and the optimizer's state, which
            it updates.
        count_chrf: Translates the dev text with the published backbone (True) or the current model, the latter perhaps in an ensemble
            with a second one, and returns chrF counts, (sentences, 18); returns None if the task does not translate.
        note: Called with a line of progress, whether the line begins or ends a step of the phase, and the share of the phase that is done.
        text: A hash of the text that the model is trained and chosen on.
        alone: The folder of models trained alone in any run (alone.py); None: none is found or stored.
    """

    site: str
    trainable: Trainable
    settings: Settings
    dev: Sequence[Example]
    train: Callable[[Settings, str, tuple[int, int], dict[str, Numbers] | None], object]
    count_chrf: Callable[[bool, Second | None], Counts | None]
    note: Callable[[str, bool, float], None]
    text: str = ""
    alone: Path | None = None

    @property
    def by(self) -> str:
        """The criterion of the choice; the loss alone if the task does not translate."""
        return self.settings.keep_by if self.settings.task == "translation" else "loss"

    def key_of_alone(self, name: str, most: int) -> str:
        """Hash all that decides a model that the site trains alone, in at most so many passes."""
        by = computed_by(self.trainable, self.settings)
        decided = [self.settings.hash_of_alone(), self.site, name, most, self.text, by]
        return digest_of(json_hash(decided), self.trainable.initial)

    def measure(self) -> DevResult:
        """Measure the dev loss of the current model."""
        use, codec = HeadUse(self.settings.head_chunk), self.trainable.backbone.codec
        return DevResult.of(token_nlls_of_each(self.trainable.model, codec, self.dev, self.settings.precision, use))


@dataclass(frozen=True)
class Kept:
    """A site's kept model.

    Attributes:
        name, reference: The candidate, and what its gain is over.
        single: The candidate that would be kept if there were no ensembles.
        models: All whose scores are reported -> function that makes its tensors, or those of an ensemble's first
            model; and an ensemble's second model.
        about: The content of choice.json.
    """

    name: str
    reference: str
    single: str
    models: Mapping[str, tuple[Callable[[], Tensors], Second | None]]
    about: Mapping[str, Any]


def choose_model(model: SiteModel, federated: Tensors, last_rounds: Sequence[NamedTensors], number: int, folder: Path) -> Kept:
    """Make all candidates and choose one; seed, text, tensors and `keep.minutes` decide. The model's tensors afterwards are undefined.

    Args:
        federated: The trained tensors of the federation's model.
        last_rounds: The tensors that the site received in the last rounds; empty if it stored none.
        number: The round after which the server had `federated`.
        folder: The folder for the phase's files.
    """
    phase = Phase(model, folder, time.monotonic())
    phase.add_base()
    settings, rounds = model.settings, model.settings.passes_of_rounds
    most = settings.keep_passes or rounds
    phase.most_alone = rounds + most
    phase.planned = (2 if settings.keep_ensemble else 1) * phase.most_alone + most
    phase.add_trained(choice.ALONE, model.trainable.initial, rounds + most, (rounds + most) / (rounds + 2 * most))
    phase.add(choice.FEDERATION, lambda: federated)
    if last_rounds:
        phase.add(choice.LAST_ROUNDS, partial(mean_of, [federated, *last_rounds]))
    shared = phase.better_of(choice.FEDERATION, choice.LAST_ROUNDS)
    phase.add_trained(choice.OWN, phase.tensors_of[shared]() if shared else federated, most, 1.0)
    if choice.OWN in phase.tensors_of:
        phase.add_mixed(choice.OWN_FEDERATION, choice.OWN, shared)
        phase.add_mixed(choice.OWN_ALONE, choice.OWN, choice.ALONE)
    else:
        phase.add_mixed(choice.FEDERATION_ALONE, shared, choice.ALONE)
    result = phase.choose()
    name, reference, gains = (
        phase.ensemble_beside(result) if settings.keep_ensemble else (result.candidate, result.reference, None)
    )
    about = {
        "site": model.site,
        "round": number,
        "seed": settings.seed,
        "config_hash": settings.hash(),
        "by": model.by,
        "confidence": choice.CONFIDENCE,
        "dev": len(model.dev),
        "kept": name,
        "single": result.candidate,
        "reference": reference,
        "gains": asdict(result)["gains"],
        "ensemble": gains,
        "candidates": phase.described(),
        "left_out": phase.left_out,
        "seconds": round(time.monotonic() - phase.started, 3),
        "training_seconds": round(phase.training_s, 3),
    }
    replace_text(folder / FILE, json_text(about))
    few = len(model.dev) < choice.LEAST_SENTENCES
    pair = phase.seconds.get(name)
    in_words = f"an ensemble of {pair.beside} and {pair.name}" if pair else name
    text = f"keeps {in_words}" + (f"; {len(model.dev)} dev sentences are too few to choose by" if few else "")
    model.note(text, True, CHOOSING)
    compared = (*choice.WITHOUT[1:], result.candidate, name)
    models = {each: phase.model_of(each) for each in compared if each in phase.tensors_of or each in phase.seconds}
    models = {choice.FEDERATION: (lambda: federated, None), **models}
    return Kept(name, reference, result.candidate, models, about)


def of_a_pass(settings: Settings) -> Settings:
    """Return the settings for one pass of training at a site; the option keep.passes defines a pass."""
    return replace(settings, local_epochs=1, sample_share=0.0) if settings.draws_in_passes else settings


def mean_of(models: Sequence[NamedTensors]) -> Tensors:
    """Return the plain mean of models, summed in float32 in the given order, over the tensors of the first."""
    total = {name: np.add.reduce([each[name] for each in models], dtype=np.float32) for name in models[0]}
    return {name: np.asarray(array / np.float32(len(models))) for name, array in total.items()}


class Phase:
    """The candidates so far. tensors_of: Name -> function that makes its tensors, which saves memory. dev: Name -> dev results.
    seconds: Ensemble -> its second model. most_alone: The most passes of a model trained alone. planned: The most passes of
    all models. passed: Those of the models that are done, whether needed or not."""

    def __init__(self, model: SiteModel, folder: Path, started: float) -> None:
        self.model, self.folder, self.started = model, folder, started
        self.tensors_of: dict[str, Callable[[], Tensors]] = {}
        self.dev: dict[str, DevResult] = {}
        self.trained: dict[str, dict[str, Any]] = {}
        self.alphas: dict[str, Mapping[Part, float]] = {}
        self.left_out: dict[str, str] = {}
        self.seconds: dict[str, Second] = {}
        self.most_alone, self.training_s = 0, 0.0
        self.planned = self.passed = 0

    def note(self, line: str, step: bool = True, passes: int = 0) -> None:
        """Report progress. passes: Those of the current training."""
        share = min(1.0, (self.passed + passes) / self.planned) if self.planned else 0.0
        self.model.note(line, step, CHOOSING * share)

    def write(self, tensors: Tensors) -> None:
        write_tensors(self.model.trainable.model, tensors)

    def add_base(self) -> None:
        with self.model.trainable.as_base():
            self.dev[choice.BASE] = self.model.measure()
        self.tensors_of[choice.BASE] = lambda: self.model.trainable.published

    def add(self, name: str, tensors_of: Callable[[], Tensors], result: DevResult | None = None) -> None:
        """Add a candidate, or record it as left out if it diverged. result: The dev result if it is already known."""
        if result is None:
            self.write(tensors_of())
            result = self.model.measure()
        if not result.loss < DIVERGED:
            self.left_out[name] = f"dev loss {result.loss:.3g} nats a token"
            return
        self.tensors_of[name], self.dev[name] = tensors_of, result

    def model_of(self, name: str) -> tuple[Callable[[], Tensors], Second | None]:
        """Return the function that makes a candidate's tensors, or those of an ensemble's first model; and an ensemble's second model."""
        second = self.seconds.get(name)
        return self.tensors_of[second.beside if second else name], second

    def better_of(self, *names: str) -> str:
        """Return the candidate with the lowest dev loss; "" if none of these exists."""
        return min((name for name in names if name in self.dev), key=lambda name: self.dev[name].loss, default="")

    def add_trained(self, name: str, start: Tensors, most: int, share_of_time: float) -> None:
        """Train a candidate from `start` in at most `most` passes and add it; reuse it if it was trained before an interruption.

        share_of_time: The share of keep.minutes, from the beginning of the phase, after which no further pass begins.
        """
        files = self.folder / f"{name}.safetensors", self.folder / f"{name}.json"
        model, settings, is_alone = self.model, self.model.settings, name in TRAINED_ALONE
        key = model.key_of_alone(name, most) if is_alone else digest_of(settings.hash(), start)
        about = self._stored(files, key)
        if about is None and is_alone and model.alone and (earlier := alone.find(model.alone, key)):
            tensors, about = earlier
            self.note(f"finds what was trained {TRAINED_ALONE[name]} in an earlier run")
            save_tensors(tensors, files[0])
            replace_text(files[1], json_text(about))
        if about is None:
            trained = self._train(name, start, most, share_of_time)
            about = {
                "key": key,
                "useless": trained.useless,
                "best": trained.best,
                "dev_losses": _finite(trained.losses),
                "rates": [*trained.rates],
                "diverged": [*trained.diverged],
                "cut_short": trained.cut_short,
            }
            if trained.cut_short:
                self.note(f"{name}: keep.minutes = {settings.keep_minutes:g} leaves no time for further passes")
            save_tensors(trained.tensors, files[0])
            replace_text(files[1], json_text(about))
            if is_alone and model.alone and not trained.cut_short:
                alone.store(model.alone, key, trained.tensors, about)
        self.passed += most
        self.trained[name] = {key: value for key, value in about.items() if key not in ("key", "useless")}
        if about["useless"]:
            self.left_out[name] = about["useless"]
            self.note(f"{name} is left out: {about['useless']}")
        elif about["best"] or name in TRAINED_ALONE:
            self.add(name, partial(load_file, files[0]))
        else:
            self.left_out[name] = "no pass lowered the dev loss"

    def _train(self, name: str, start: Tensors, most: int, share_of_time: float) -> Trained:
        model, settings = self.model, self.model.settings
        self.note(f"trains {TRAINED_ALONE.get(name, 'on from the federation')}, at most {most} passes")
        rates = [float(rate) for rate in settings.keep_rates.split(",")]
        optimizers: dict[float, dict[str, Numbers]] = {rate: {} for rate in rates}
        until = self.started + 60 * settings.keep_minutes * share_of_time if settings.keep_minutes else math.inf

        number = 0

        def train(this: int, rate: float) -> None:
            nonlocal number
            number = this
            how = of_a_pass(settings)
            # Trained alone, the first passes at rate 1 equal the rounds of method adapter-local. Other models and rates have no schedule.
            if name not in TRAINED_ALONE or rate != 1:
                how = replace(how, learning_rate=rate * settings.step_learning_rate, schedule="constant", warmup_steps=0)
            seed = f"{settings.seed}/{model.site}/{number if name == choice.ALONE else f'{name}/{number}'}"
            optimizer = optimizers[rate] if settings.optimizer_state == "kept" else None
            begun = time.monotonic()
            model.train(how, seed, (number, max(number, settings.passes_of_rounds)), optimizer)
            self.training_s += time.monotonic() - begun

        return train_until_dev_stops(
            start,
            rates,
            settings.keep_patience,
            most,
            train,
            lambda: model.measure().loss,
            self.write,
            partial(read_tensors, model.trainable.model, model.trainable.trained),
            lambda line: self.note(f"{name}, {line}", False, number),
            lambda: time.monotonic() < until,
        )

    @staticmethod
    def _stored(files: tuple[Path, Path], key: str) -> dict[str, Any] | None:
        """Return the record of an earlier training with the same key, else None; also if the file of its tensors cannot be read."""
        with suppress(OSError, ValueError, SafetensorError):
            about: dict[str, Any] = json.loads(files[1].read_bytes())
            if about["key"] == key:
                with safe_open(files[0], "numpy"):
                    return about
        return None

    def add_mixed(self, name: str, own: str, other: str) -> None:
        """Add interpolations of two candidates, if both exist: with one alpha for all tensors, and with one per part."""
        if not {own, other} <= set(self.tensors_of):
            return
        first, second = self.tensors_of[other](), self.tensors_of[own]()
        trained = self.model.trainable.trained
        parts: list[Part] = [part for part in PARTS[:2] if trained.of_part(part)]

        results: dict[tuple[float, ...], DevResult] = {}

        def loss(alphas: Mapping[Part, float]) -> float:
            self.write(interpolated_by_part(first, second, alphas, trained))
            results[tuple(alphas.values())] = self.model.measure()
            return results[tuple(alphas.values())].loss

        ends = (self.dev[other].loss, self.dev[own].loss)
        for place, alphas in enumerate(search_alphas(parts, loss, ends)):
            alike = set(alphas.values())
            if len(alike) == 1 and (place or alike & {0.0, 1.0}):
                continue  # equals one of the two models or the previous candidate
            key = name + choice.BY_PART if place else name
            self.alphas[key] = alphas
            self.add(key, partial(self._mixed_again, own, other, alphas), results.get(tuple(alphas.values())))

    def _mixed_again(self, own: str, other: str, alphas: Mapping[Part, float]) -> Tensors:
        return interpolated_by_part(self.tensors_of[other](), self.tensors_of[own](), alphas, self.model.trainable.trained)

    def choose(self) -> Choice:
        """Translate the dev text with the candidates whose chrF the choice can depend on, and choose."""
        model = self.model
        if len(model.dev) >= choice.LEAST_SENTENCES:
            while name := choice.next_to_translate(self.dev, model.by):
                if not self.translate(name):
                    break  # a custom client that does not translate
        return choice.choose(self.dev, model.by)

    def translate(self, name: str) -> bool:
        """Translate the dev text with a candidate, whose results then include its chrF; return whether the task translates."""
        self.note(f"translates the dev text with {name}", False)
        tensors_of, second = self.model_of(name)
        if name != choice.BASE:
            self.write(tensors_of())
        counts = self.model.count_chrf(name == choice.BASE, second)
        if counts is not None:
            self.dev[name] = replace(self.dev[name], chrf=counts)
        return counts is not None

    def ensemble_beside(self, chosen: Choice) -> tuple[str, str, dict[str, Any] | None]:
        """Measure the ensemble of the model trained alone and the chosen one or, if alone has a part in that, the best other.

        Models whose mistakes differ gain most from averaging, and these two have seen different text. Two models are compared with two: an
        ensemble that gains is kept only if it, or else the chosen model, also beats an ensemble of two trained alone.

        Returns:
            What is kept, what its gain is over, and what choice.json tells of the ensemble.
        """
        model, before = self.model, chosen.candidate
        without = [name for name in self.dev if name not in (*choice.WITHOUT, *choice.WITH_ALONE)]
        joined = before if before in without else self.better_of(*without)
        first, name = (joined, choice.ALONE) if before == joined else (choice.ALONE, joined)
        too_few = len(model.dev) < choice.LEAST_SENTENCES
        is_base = choice.BASE in (before, chosen.reference)
        if model.settings.task != "translation" or too_few or is_base or not {first, name} <= set(self.dev):
            return before, chosen.reference, None
        share = self.average(choice.ENSEMBLE, first, name)
        about: dict[str, Any] = {"first": first, "second": name, "share": share, "gains": {}}
        try:
            gains = self.gains(before, choice.ENSEMBLE)
            about["gains"] = {criterion: asdict(each) for criterion, each in gains.items()}
            if not gains or not choice.is_shown(gains):
                return before, chosen.reference, about
            return *self._beside_two_alone(chosen), about
        except (torch.OutOfMemoryError, MemoryRunsOutError):
            self.note("two models at a time run out of memory, so there is no ensemble")
            return before, chosen.reference, about

    def _beside_two_alone(self, chosen: Choice) -> tuple[str, str]:
        """Train a second model alone; return what of the ensemble, the chosen model and the reference is kept, and the reference."""
        by = self.model.by
        self.add_trained(choice.SECOND_ALONE, self.model.trainable.initial, self.most_alone, 1.0)
        second = self.dev.pop(choice.SECOND_ALONE, None)
        if second is None:
            self.note("keeps no ensemble, since no second model trained alone is there to compare it with")
            return chosen.candidate, chosen.reference
        self.average(choice.ALONE_ENSEMBLE, choice.ALONE, choice.SECOND_ALONE, second)
        if by == "chrf":
            self.are_translated(choice.ALONE_ENSEMBLE)
        reference = choice.better_without(self.dev, by)
        for name in (choice.ENSEMBLE, chosen.candidate):
            if name not in choice.WITHOUT and choice.is_shown(self.gains(reference, name)):
                return name, reference
        return reference, reference

    def gains(self, first: str, name: str) -> dict[str, choice.Gain]:
        """Return a candidate's gains over another by each criterion, both translated where that can still refute it; where the loss shows
        no gain, of the loss alone, and nothing if the task does not translate."""
        pair, by = (self.dev[first], self.dev[name]), self.model.by
        if by != "chrf" and (of_loss := choice.gain(*pair, "loss")).low <= 0:
            return {"loss": of_loss}
        if not self.are_translated(first, name):
            return {}
        return choice.gains_over(self.dev[first], self.dev[name], by)

    def average(self, ensemble: str, first: str, name: str, second: DevResult | None = None) -> float:
        """Add the ensemble of two candidates with the share of the second that has the lowest dev loss, and return this share."""
        pair = self.dev[first], second or self.dev[name]
        results = {share: choice.averaged(*pair, share) for share in choice.SHARES}
        share = min(results, key=lambda share: results[share].loss)
        self.dev[ensemble], self.seconds[ensemble] = results[share], Second(first, name, self.tensors_of[name](), share)
        return share

    def are_translated(self, *names: str) -> bool:
        """Translate the dev text with those candidates whose chrF is needed and not known; return False if the task does not translate."""
        needed = [] if self.model.by == "loss" else [name for name in names if self.dev[name].chrf is None]
        return all(self.translate(name) for name in needed)

    def described(self) -> dict[str, dict[str, Any]]:
        """Return candidate -> its dev results, alphas and training record."""
        described: dict[str, dict[str, Any]] = {}
        for name, result in self.dev.items():
            described[name] = {"dev_loss": result.loss}
            if result.chrf is not None:
                described[name]["dev_chrf"] = result.value("chrf")
            if name in self.alphas:
                described[name]["alphas"] = dict(self.alphas[name])
        for name, about in self.trained.items():
            described[name] = {**described.get(name, {}), **about}
        return described


def _finite(losses: Sequence[float]) -> list[float | None]:
    """Replace NaN and infinity, which JSON cannot hold, by None."""
    return [loss if math.isfinite(loss) else None for loss in losses]
