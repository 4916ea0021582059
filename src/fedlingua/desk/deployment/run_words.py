"""A run at a site in words, as its owner approves it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

from fedlingua.backbones.directories import backbone_directory
from fedlingua.consent.limits import Steps, planned_steps, step_words
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.metrics import OF_TEXT
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING

_COUNTS = {
    "fed-mean": "every site counts the same",
    "fed-avg": "each site counts by the number of its sentences",
    "by-loss": "a site counts more the lower its training loss is",
    "norm-clip": "every site counts the same, after longer updates are cut to one length",
}
"""Value of `aggregation` -> how sites count, in words."""


def in_words(settings: Settings, rules: TextRules, here: Settings | None = None) -> Iterator[str]:
    """Describe what a run does at a site, line by line; `sends` lists what the site sends. here: The settings as the site's file bounds
    them, if it does."""
    yield f"method {settings.method}: {_trains(settings)}"
    if settings.how.trains:
        yield _rounds(settings)
    yield _measures(settings)
    if settings.trains_privately:
        yield private_words(settings)
    if (here := here or settings).chooses:
        yield _chooses(here)
    yield _split(rules)
    if other := _other(_as_in_file(rules), _as_in_file(TextRules(split=rules.split))):
        yield f"further rules for the text: {other}"
    yield f"settings other than the defaults: {_other(settings.flat(), default_run_config()) or 'none'}"


def _trains(settings: Settings) -> str:
    """Say what trains, and with whom it is averaged."""
    if not settings.how.trains:
        return f"nothing trains and nothing is averaged; the site measures {settings.backbone} as it is"
    what = {
        "adapters": f"adapters of {settings.backbone}, of {settings.adapter_dim} neurons each",
        "full": f"all weights of {settings.backbone}",
        "lora": f"matrices of rank {settings.lora_rank} (LoRA) that are added to {settings.backbone}",
        "controllers": f"all weights of {settings.backbone} and {settings.controllers} layers added to each of encoder and decoder",
    }[settings.trained_set]
    if not settings.how.travels:
        return f"trains {what}, at this site alone; nothing is averaged with other sites"
    travel = "; the added layers alone leave the site" if settings.splits_model else ""
    if settings.strategy:
        return f"trains {what}{travel}; the server combines the sites' as strategy = {json.dumps(settings.strategy)} does"
    stepped = f", and takes a step of {settings.optimized_by} with the mean" if settings.optimized_by != "none" else ""
    return f"trains {what}{travel}; the server averages {_with_whom(settings)}; {_COUNTS[settings.aggregation]}{stepped}"


def _with_whom(settings: Settings) -> str:
    """Say over which sites the server averages."""
    of_languages = {
        "group": "whose languages are of one group, such as Germanic",
        "family": "whose languages are of one family, such as Indo-European",
        "given": "that the federation file puts into one cluster",
    }[settings.cluster_by]
    clusters = {
        "random": "over the sites of a cluster that is drawn at random",
        "gradients": "over the sites of a cluster, whose gradients are similar",
        "families": f"over the sites {of_languages}",
    }
    if settings.how.clustering not in clusters:
        return "them over all sites"
    with_whom = clusters[settings.how.clustering]
    if settings.how.clustering == "families" and settings.cluster_by != "given" and settings.cluster_least > 1:
        with_whom += f" (a cluster of fewer than {settings.cluster_least} sites joins another)"
    both = settings.cluster_parts == "both"
    return (
        f"encoder and decoder each {with_whom}" if both else f"the {settings.cluster_parts} {with_whom}, the rest over all sites"
    )


def _rounds(settings: Settings) -> str:
    """Say how many rounds there are, and how a round trains."""
    batch = f"{settings.tokens_per_batch} tokens" if settings.tokens_per_batch else f"{settings.batch_size} sentences"
    of = "over its training text"
    if settings.draws:
        least, share = f"{settings.sample_least} examples", f"{100 * settings.sample_share:g} %"
        size = f"{least} or {share}, whichever is more," if settings.sample_least and settings.sample_share else least
        size = size if settings.sample_least else share
        how = "with repeats" if settings.sample_replacement else "none twice before all were drawn"
        of = f"over {size} of its training text, {how}"
    by_round = "; the strategy may set learning rate and passes anew in each round" if settings.strategy else ""
    return (
        f"at most {_number(settings.rounds, 'round')}, each of {_number(settings.local_epochs, 'pass', 'es')} {of}: {settings.optimizer}, "
        f"learning rate {settings.step_learning_rate:g}, steps of {settings.accumulation} x {batch}{by_round}"
    )


def _measures(settings: Settings) -> str:
    """Say what is measured, when, and on which text."""
    share = "all" if settings.evaluate_share == 1 else f"{100 * settings.evaluate_share:g} %"
    every = "every round" if settings.evaluate_every == 1 else f"every {settings.evaluate_every} rounds and the last"
    when = f"before the first round and after {every}" if settings.how.trains else "once"
    scored = "perplexity, masked pieces guessed right"
    if settings.task == "translation":
        scored = ", ".join(OF_TEXT[name].name for name in ("bleu", "chrf", *settings.more_metrics)) + f" (beam {settings.beam})"
    return f"measures the loss on {share} of dev {when}, and on {settings.score_split} at the end: {scored}"


def _chooses(settings: Settings) -> str:
    """Say how a site chooses what it keeps, and how long it trains for that."""
    by = "dev loss and chrF on dev" if settings.keep_by == "both" else "chrF on dev" if settings.keep_by == "chrf" else "dev loss"
    if settings.task != "translation":
        by = "dev loss"
    rounds = settings.passes_of_rounds
    passes = settings.keep_passes or rounds
    models, each = ("two models", " each") if settings.keep_ensemble else ("a model", "")
    alone, further = _number(rounds + passes, "pass", "es"), _number(passes, "pass", "es")
    long = "all of its text" if settings.draws_in_passes else "what a round trains on"
    minutes = f"; after {settings.keep_minutes:g} minutes it starts no further pass" if settings.keep_minutes else ""
    return (
        f"at the end the site chooses by {by} what it keeps: it trains {models} on its own text alone, at most {alone}{each}, and one on "
        f"from the federation's model, at most {further}; a pass is over {long}{minutes}"
    )


def _split(rules: TextRules) -> str:
    """Say how the text is split."""
    split = rules.split
    if split.mode == "given":
        return "the text comes in train, dev and test, and nothing is moved between them"
    of = "document" if rules.directions and rules.directions[0].is_one_language else "sentence on the side that the sites share"
    if split.mode == "components" and of != "document":
        of = "group of pairs that have sentences in common"
    by = f"splits the text by a hash of each {of}, under the key"
    if split.mode == "paper":
        by = "shuffles the text and cuts it, with the key"
    shares = ", ".join(f"{100 * getattr(split, name):g} % {name}" for name in SPLITS)
    mixed = "; train and dev of all sites are mixed" if split.mixed else ""
    return f"{by} {json.dumps(split.key, ensure_ascii=False)}: {shares}{mixed}"


def _number(number: int, unit: str, plural: str = "s") -> str:
    return f"{number} {unit}{'' if number == 1 else plural}"


def steps_in_words(texts: Mapping[str, SiteText], settings: Settings) -> Iterator[str]:
    """Describe how many examples are behind each optimizer step of what a site sends, site by site."""
    if settings.client and settings.how.travels:
        yield f"optimizer steps as client = {settings.client!r} makes them"
    for site, steps in site_steps(texts, settings).items():
        yield f"{site}: optimizer {step_words(steps)}; the fewer share a step, the more an update tells of each"


def site_steps(texts: Mapping[str, SiteText], settings: Settings) -> dict[str, Steps]:
    """Return site -> the optimizer steps of a round behind what it sends, if it sends any without noise and the run's own client makes
    them. Those by tokens or blocks of text are made as for a round, which takes the backbone's tokenizer."""
    if not (settings.how.trains and settings.how.travels) or settings.trains_privately or settings.client:
        return {}
    planned = {site: planned_steps([len(text.splits["train"])], settings) for site, text in texts.items()}
    return {site: _made(texts[site], settings) if steps is None else steps for site, steps in planned.items()}


def _made(text: SiteText, settings: Settings) -> Steps:
    from fedlingua.backbones.load import load_backbone
    from fedlingua.training.loop import steps_of
    from fedlingua.training.site_examples import EXAMPLE_MAKERS

    codec = load_backbone(
        backbone_directory(settings.backbone, settings.backbone_revision), settings.backbone, as_stored=True
    ).codec
    steps = steps_of(settings, [EXAMPLE_MAKERS[settings.task].trained(text, "train", codec, settings)], Random(0))
    return Counter(sum(map(len, step)) for step in settings.local_epochs * steps)


def private_words(settings: Settings) -> str:
    """Return the guarantee of a run's private training in words."""
    unit, hidden = ("document", "single document") if settings.dp_unit == "document" else ("sentence", "single sentence pair")
    share, least = settings.private_share, settings.privacy_min_cluster
    each = f"each on all {unit}s" if share >= 1 else f"a {unit} in each with probability {share:g}"
    whole = f"; this site adds a share of the noise, which is whole if {least} sites of a sum, it among them, are honest"
    return (
        f"all rounds together tell of a {hidden} of train at most epsilon = {settings.dp_epsilon:g} at delta = "
        f"{settings.dp_delta:g}: {settings.rounds * settings.local_epochs} noised steps, {each}; the dev loss and scores have no noise"
        f"{whole if settings.shares_noise else ''}"
    )


def _as_in_file(rules: TextRules) -> dict[str, object]:
    """Return the rules by the names that a federation file has for them."""
    named = {
        key.replace("_", "-"): value
        for key, value in rules.flat().items()
        if key != "directions" and not key.startswith("split.")
    }
    return {key.replace("limits.", "split.max-"): value for key, value in named.items()}


def _other(values: Mapping[str, object], usual: Mapping[str, object]) -> str:
    """Return the values that are not the usual ones, as a file has them."""
    other = {key: value for key, value in values.items() if value != usual[key] and key not in CHANGES_WITHOUT_ASKING}
    return ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in other.items())
