"""A run at a site in words, as its owner approves it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

from fedlingua.backbones.directories import backbone_directory
from fedlingua.consent.limits import Steps, planned_steps, step_words
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.texts import SiteText
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import CHANGES_WITHOUT_ASKING


def in_words(settings: Settings, rules: TextRules) -> Iterator[str]:
    """Describe what a run does at a site, line by line; `sends` lists what the site sends."""
    epochs = f"{settings.local_epochs} epoch(s) by {settings.optimizer}, learning rate {settings.step_learning_rate:g}"
    batch = f"{settings.tokens_per_batch} tokens" if settings.tokens_per_batch else f"{settings.batch_size} sentences"
    yield f"method {settings.method}: trains {settings.trained_set} of {settings.backbone}, averaged by {settings.how.clustering}"
    yield f"at most {settings.rounds} rounds of {epochs}, {settings.accumulation} x {batch} a step; selection {settings.rule}"
    scored = f"{settings.metrics} of {settings.score_split} at the end, beam {settings.beam}"
    yield f"measures the loss of {settings.evaluate_share:.0%} of dev every {settings.evaluate_every} round(s), and {scored}"
    if settings.trains_privately:
        yield private_words(settings)
    if settings.chooses:
        passes = settings.keep_passes or settings.passes_of_rounds
        most = f"{settings.rounds + passes} passes alone and {passes} on from the federation's model"
        yield f"chooses at the end what it keeps, by {settings.keep_by} on dev: trains at most {most}"
    yield f"text split by {rules.split}; of text rules besides: {_other(rules.flat(), TextRules(split=rules.split).flat())}"
    yield f"settings other than the defaults: {_other(settings.flat(), default_run_config())}"


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


def _other(values: Mapping[str, object], usual: Mapping[str, object]) -> str:
    other = [f"{key} = {value!r}" for key, value in values.items() if value != usual[key] and key not in CHANGES_WITHOUT_ASKING]
    return ", ".join(other) or "none"
