"""Keys of a run config that exclude each other, each with the reason and what to do.

What a layer forbids is in a table named after it: key -> whether its value is in the way, and what it does there. The tables stand here
and not beside the layers, since these import settings, and Flower, which takes a second: a command that reads settings would wait for it.
"""

import math
import re
from collections.abc import Callable, Iterator

from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.methods import AGREED, SMALL_SETS
from fedlingua.settings.table import OPTIONS

Exclusions = dict[str, tuple[Callable[[Settings], bool], str]]
MOST_PRIVATE_DIM = 64
"""Most numbers in a private signature; each adds noise."""
WITHOUT_FEDERATION: dict[str, tuple[Scalar, ...]] = {
    "aggregation": ("fed-mean", "fed-avg", "by-loss"),
    "async.buffer": (0,),
    "dp.epsilon": (0,),
    "layers": ("",),
    "privacy.sum": ("plain",),
    "pull": (0,),
    "send.rule": ("all", ""),
    "server.optimizer": ("none", ""),
    "sites-per-round": (0,),
    "start-from": ("",),
}
"""Key -> its values that go with a method under which nothing leaves a site."""


def conflicts(settings: Settings) -> Iterator[str]:
    """Yield a message for each conflict between keys."""
    groups = (_of_methods, _of_the_run, _of_clusters, _of_modes, _of_training, _of_the_server, _of_sending)
    for of_group in groups:
        yield from of_group(settings)
    if settings.task == "masked-language":
        yield from _of_masked_language(settings)


def _said(settings: Settings, key: str) -> str:
    """Return a key with its value, as messages begin."""
    return f"{key} = {typed(getattr(settings, OPTIONS[key].attribute))}"


def typed(value: Scalar) -> str:
    """Return a value as it stands in a TOML file."""
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def _of_methods(settings: Settings) -> Iterator[str]:
    """Yield conflicts with a method under which nothing leaves a site."""
    for key, values in WITHOUT_FEDERATION.items() if not settings.how.travels else ():
        if getattr(settings, OPTIONS[key].attribute) not in values:
            here = f"under method {settings.method} nothing leaves a site"
            yield f"{_said(settings, key)}, and {here}; give {typed(values[0])}, or a federated method"


def _of_the_run(settings: Settings) -> Iterator[str]:
    if settings.resume and not settings.run_dir:
        yield "resume = true needs run-dir, the folder of the run to resume"
    layers = [("layers", name) for name in settings.own_layers]
    for key, value in (("strategy", settings.strategy), ("client", settings.client), *layers):
        if value and not re.fullmatch(r"[\w.]+:\w+(\(.*\))?", value):
            name = value if re.fullmatch(r"\w+(\(.*\))?", value) else f"My{key.title().removesuffix('s')}"
            flowers = f", 'flwr.serverapp.strategy:{name}' for a class of Flower's" if key == "strategy" else ""
            yield f"{key} = {value!r} is not known; give 'my_file:{name}' for a class in my_file.py{flowers}, or leave it empty"
    classes = [name.partition("(")[0] for _, name in layers]
    if twice := next((name for name in classes if classes.count(name) > 1), ""):
        yield f"layers = {settings.layers!r} has {twice!r} twice; give each layer once"
    if settings.start_from and settings.compares_rounds:
        yield (
            f"start-from = {settings.start_from!r}, and selection {settings.selected_by} compares the first round with the backbone's "
            "tensors, which are not those it begins with; give send.rule = 'all', or leave start-from out"
        )
    if settings.backbone_weights == "random" and settings.trained_set != "full":
        yield (
            f"backbone-weights = 'random' needs a tensor set that trains all weights, but got {settings.trained_set!r}; give a method "
            "of the full model, or backbone-weights = 'published'"
        )
    if settings.adapter_layers != "all" and settings.trained_set not in SMALL_SETS:
        yield (
            f"adapter.layers = {settings.adapter_layers!r} prunes adapters, but the tensor set is {settings.trained_set!r}; "
            f"give adapter.layers = 'all', or tensor-set = one of {', '.join(SMALL_SETS)}"
        )
    if settings.how.pools != "all" and settings.score_split == "dev":
        yield (
            f"score-split = 'dev', and under method {settings.method} only the pool's own dev text is kept, which chooses its best "
            "round; give 'test', or a method that trains on all sites' text"
        )
    if settings.sites_per_round:
        yield from _against_draws(settings)


def _against_draws(settings: Settings) -> Iterator[str]:
    """Yield conflicts with rounds that only some sites train in."""
    here = f"sites-per-round = {settings.sites_per_round:g}"
    if settings.sites_per_round > 1 and not settings.sites_per_round.is_integer():
        yield f"{here}; wanted a whole number of sites, or a share below 1"
    if settings.has_two_phases:
        yield f"{here}, and selection {settings.selected_by} makes a threshold from all sites' losses; give 0, or another send.rule"
    if settings.draws and not settings.sample_replacement:
        yield (
            f"{here}, and under sample.replacement = false a site that is not drawn would miss its next examples; give 0, or "
            "sample.replacement = true"
        )


def _of_clusters(settings: Settings) -> Iterator[str]:
    clustering, number = settings.how.clustering, settings.num_clusters
    if clustering == "gradients" and settings.trained_set != "adapters":
        yield (
            f"method {settings.method} takes the gradient of an adapter, but the tensor set is {settings.trained_set!r}; "
            "give tensor-set = 'adapters', or another method"
        )
    if number != 0 and clustering not in ("random", "gradients"):
        yield (
            f"cluster.number = {number}, but method {settings.method} takes no number of clusters; leave it 0, or choose "
            "adapter-random or adapter-gradients"
        )
    if number == -1 and clustering != "gradients":
        yield "cluster.number = -1 leaves the number to the silhouette of gradients; give adapter-random a number, or 0"
    if settings.signature_form == "private" and settings.signature_dim > MOST_PRIVATE_DIM:
        yield (
            f"signature.dim = {settings.signature_dim}; a private signature has at most {MOST_PRIVATE_DIM} numbers; lower it, or give "
            "signature.form = 'raw'"
        )
    if settings.cluster_parts != "both" and clustering in ("none", "alone"):
        yield f"cluster.parts = {settings.cluster_parts!r}, but method {settings.method} has no clusters; leave it 'both'"
    places = [re.fullmatch(r"(encoder|decoder)\.-?\d+\.\w+", name.strip()) for name in settings.signature_adapter.split(",")]
    if len(places) > 2 or len({place and place[1] for place in places} - {None}) < len(places):
        yield (
            f"signature.adapter = {settings.signature_adapter!r}; wanted part.layer.place, as in 'encoder.-1.fc2', of the encoder "
            "and of the decoder with a comma between them, or one for both"
        )


SECURE_SUMS: Exclusions = {
    "aggregation": (
        lambda s: s.aggregation not in ("fed-mean", "fed-avg") and not s.clips_at_sites,
        "weighs or compares single updates; give 'fed-mean', 'fed-avg', or 'norm-clip' with robust.clip-norm above 0, which is a length "
        "to which every site shortens its own update, not the median of all",
    ),
    "send.rule": (
        lambda s: s.rule not in AGREED,
        f"takes numbers or losses of single sites; give one of {', '.join(AGREED)}, by which all sites send the same",
    ),
    "strategy": (lambda s: bool(s.strategy), "is handed single updates; leave it empty"),
    "optimizer": (lambda s: s.optimizer == "sgd", "bounds no update, by which numbers are scaled; give adam or adamw"),
    "metrics": (
        lambda s: s.sums_scores and bool(s.more_metrics),
        "are not summed under masks; give 'bleu, chrf', or privacy.scores = 'sites'",
    ),
    "robust.max-norm": (lambda s: s.max_update_norm > 0, "needs the length of each update; give 0"),
    "signature.form": (
        lambda s: s.how.clustering == "gradients" and s.signature_form == "raw",
        "sends a gradient of each site; give 'private', or a method that is not clustered by gradients",
    ),
}
"""What `SecureSums` forbids: key -> test of whether its value is unsound there, and the reason. Keys that are not listed are sound."""
PRIVATE_TRAINING: Exclusions = {
    "task": (
        lambda s: s.task != "translation",
        "fills sequences, so that one sentence moves all that follow; give 'translation'",
    ),
    "dp.unit": (
        lambda s: s.dp_unit == "site",
        "cannot be protected: to hide one of 12 sites over 20 rounds at epsilon 8, delta 1e-5 takes noise of 2.7 clips, in the mean 0.22 "
        "clips a number: 635 clips over 8 million numbers; give 'sentence' or 'document'",
    ),
    "method": (
        lambda s: s.dp_unit == "document" and s.how.clustering == "gradients",
        "makes signatures whose noise hides a sentence, not a document; give one with other clusters, or dp.unit = 'sentence'",
    ),
    "aggregation": (lambda s: s.aggregation == "by-loss", "needs each site's training loss, which stays there; give 'fed-mean'"),
    "send.rule": (lambda s: s.has_two_phases, "needs each site's training loss, which stays there; give another"),
    "sample.least": (lambda s: s.sample_least > 0, "draws a fixed number of sentences; give 0, and sample.share"),
    "sample.share": (lambda s: s.sample_share > 1, "is no probability; give 1 or less"),
    "sample.replacement": (
        lambda s: s.draws and not s.sample_replacement,
        "draws sentences that depend on each other; give true",
    ),
    "overlap": (lambda s: s.overlap != "off", "sends a hash of every sentence; give 'off'"),
    "memory.gradient-checkpointing": (
        lambda s: s.gradient_checkpointing,
        "forgets what clipping needs; give memory.micro-tokens",
    ),
    "frozen-bits": (
        lambda s: s.frozen_bits == 8,
        "looks for outliers in all sentences of a batch at once, so that one sentence changes the gradients of others; give 4 or 0",
    ),
    "signature.form": SECURE_SUMS["signature.form"],
}
"""What `PrivateTraining` forbids: what breaks the guarantee of dp.epsilon. Keys that are not listed are sound: values computed
from noised gradients alone (Adam's state, selections, codes) reveal nothing more."""

_ONE_STEP = "makes an update other than one step along a sum of clipped gradients"
NOISE_IN_SHARES: Exclusions = {
    "privacy.sum": (lambda s: not s.sums_securely, "has no sum in which shares of noise add up; give 'secure'"),
    "dp.epsilon": (lambda s: not s.trains_privately, "needs no noise; give more than 0, such as 8, and a method that trains"),
    "sample.share": (lambda s: s.sample_share > 0, "draws sentences; give 0, all text in each round"),
    "local-epochs": (lambda s: s.local_epochs != 1, f"{_ONE_STEP}; give 1, and more rounds"),
    "optimizer-state": (
        lambda s: s.optimizer_state != "fresh",
        "carries on a site's own steps, which count for nothing; give 'fresh'",
    ),
    "weight-decay": (lambda s: s.weight_decay > 0, f"{_ONE_STEP}; give 0"),
    "clip-norm": (lambda s: s.clip_norm > 0, f"{_ONE_STEP}; give 0"),
    "pull": (lambda s: s.pull > 0, f"{_ONE_STEP}; give 0"),
    "aggregation": (lambda s: s.aggregation != "fed-avg", "weighs sentences of a small site more than others'; give 'fed-avg'"),
    "sampling-temperature": (lambda s: s.sampling_temperature != 1, "weighs sentences of a small site more than others'; give 1"),
    "tensor-set": (lambda s: s.trained_set == "controllers", "trains without noise what stays at a site; give another"),
    "send.rule": (lambda s: s.rule != "all", "leaves out tensors, and their noise; give 'all'"),
    "sites-per-round": (lambda s: s.sites_per_round > 0, "leaves out sites, and their shares of the noise; give 0"),
    "send.code": (lambda s: s.code_up.method != "none", "rounds the noised sum anew; give 'none' or 'auto'"),
    "client": (lambda s: bool(s.client), "may send other numbers than sums of clipped gradients; leave it empty"),
    "layers": (lambda s: bool(s.layers), "may send other numbers than sums of clipped gradients; leave it empty"),
}
"""What `PrivateTraining` forbids besides where noise is made in shares. A round has to send one noised sum of
gradients that are clipped by sentence. `PRIVATE_TRAINING` and `SECURE_SUMS` exclude the rest."""
QUANTIZED: Exclusions = {
    "device": (
        lambda s: s.device == "cpu",
        "computes without a GPU, which the quantized layers need; give 'cuda', or frozen-bits = 0",
    ),
    "tensor-set": (
        lambda s: bool(s.tensor_set) and s.trained_set not in SMALL_SETS,
        f"trains all weights, so that none is frozen; give one of {', '.join(SMALL_SETS)}",
    ),
    "method": (
        lambda s: not s.tensor_set and s.trained_set not in SMALL_SETS,
        f"trains all weights, so that none is frozen; give tensor-set = one of {', '.join(SMALL_SETS)}",
    ),
}
"""What does not go with quantized weights (frozen-bits), which are no layer."""
BUFFER: Exclusions = {
    "privacy.sum": (lambda s: s.sums_securely, "has masks that cancel in the sum of all its sites only; give 'plain'"),
    "sites-per-round": (lambda s: s.sites_per_round > 0, "draws whom a round asks, not who answers first; give 0"),
    "send.rule": (lambda s: s.selected_by != "all", "selects tensors by one round's updates; give 'all'"),
    "sample.replacement": (
        lambda s: s.draws and not s.sample_replacement,
        "has a site train on the next examples in every round; give true",
    ),
}
"""What `Buffer` forbids: what needs all sites in every round."""


def _of_modes(settings: Settings) -> Iterator[str]:
    """Yield conflicts with secure sums, differential privacy, quantized weights, and rounds that do not wait for all sites."""
    chosen = (
        ("privacy.sum", settings.sums_securely, SECURE_SUMS),
        ("dp.epsilon", settings.trains_privately, PRIVATE_TRAINING),
        ("dp.noise", settings.dp_noise == "shares", NOISE_IN_SHARES),
        ("frozen-bits", settings.frozen_bits > 0, QUANTIZED),
        ("async.buffer", settings.async_buffer > 0 and settings.how.travels, BUFFER),
    )
    for key, holds, excluded in chosen:
        for other, (is_in_the_way, why) in excluded.items() if holds else ():
            if is_in_the_way(settings):
                yield f"{_said(settings, key)}, and {_said(settings, other)} {why}"


def _of_training(settings: Settings) -> Iterator[str]:
    if settings.how.pooled and settings.draws and not settings.sample_replacement and settings.sampling_temperature != 1:
        yield (
            f"sampling-temperature = {settings.sampling_temperature:g}, and under sample.replacement = false every example of the "
            "pool comes once before any comes again, whichever text it belongs to; give 1, or sample.replacement = true"
        )
    if settings.optimizer != "sgd" and not settings.optimizer_epsilon > 0:
        yield f"optimizer-epsilon = {settings.optimizer_epsilon:g}, and {settings.optimizer} divides by it; give more than 0"
    if 0 < settings.tokens_per_batch < settings.max_tokens:
        yield (
            f"tokens-per-batch = {settings.tokens_per_batch} holds no sentence of max-tokens = {settings.max_tokens}; give so many or "
            "more, or 0 for batches of batch-size sentences"
        )
    if settings.evaluate_every > 1 and settings.learns_threshold:
        yield (
            f"evaluate-every = {settings.evaluate_every}, and selection {settings.selected_by} learns from every round's dev text; "
            "leave it 1"
        )


def _of_masked_language(settings: Settings) -> Iterator[str]:
    untranslated = "and nothing is translated under task = 'masked-language'; leave it"
    if settings.more_metrics:
        yield f"metrics = {settings.metrics!r}, {untranslated} {OPTIONS['metrics'].default!r}"
    if settings.keep_translations:
        yield f"keep-translations = {settings.keep_translations}, {untranslated} 0"
    if settings.trained_set == "controllers":
        yield (
            "tensor-set = 'controllers' adds layers to translation models; give full, adapters or lora under task = 'masked-language'"
        )


def _of_the_server(settings: Settings) -> Iterator[str]:
    if settings.optimized_by != "none" and settings.learns_threshold:
        yield (
            f"server.optimizer = {settings.optimized_by!r}, and selection {settings.selected_by} learns its threshold from what it does to "
            "the sites' mean; give server.optimizer = 'none', or another send.rule"
        )


def _of_sending(settings: Settings) -> Iterator[str]:
    code = settings.code_up
    if settings.sums_securely and code.method != "none" and (code.method != "levels" or code.nearest):
        here = f"privacy.sum = 'secure', and {_said(settings, 'send.code')}"
        yield f"{here} has places or scales of a single site's; give '2bit' to '8bit', whose levels are summed, 'none' or 'auto'"
    if settings.fixed_threshold != "median" and not _is_number(settings.fixed_threshold):
        yield (f"send.fixed-threshold = {settings.fixed_threshold!r}; wanted a number, 0 or above, as in '0.5', or 'median'")
    if settings.selected_by != "all" and (settings.code_up.nearest or settings.code_up.method in ("top", "rank")):
        yield (
            f"send.code = {settings.send_code!r}, and selection {settings.selected_by} leaves nothing behind that a later update could "
            "make up for; give send.code = 'lossless' or '2bit' to '8bit', or send.rule = 'all'"
        )
    if settings.second_filter and not settings.learns_threshold:
        yield (
            f"meta.second-filter = true looks at what a learned threshold leaves, and selection {settings.selected_by} learns none; "
            "give metasend-g or metasend-l, not frozen, or meta.second-filter = false"
        )
    if settings.pull and settings.has_two_phases:
        yield f"pull = {settings.pull:g}, and selection {settings.selected_by} has no request that tells it; give 0, or another send.rule"
    if settings.learns_threshold and not settings.meta_learning_rate > 0:
        yield (f"meta.learning-rate = {settings.meta_learning_rate:g} learns nothing; give more than 0, or meta.frozen = true")


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
