"""Checks that a site makes before it joins. Each gives one result; nothing leaves the site but a TLS handshake and a trial connection."""

import contextlib
import math
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from fedlingua.backbones.knowledge import doubts, near_chance
from fedlingua.common.devices import check_bits, computed_in
from fedlingua.common.errors import DeploymentError, ExchangeError
from fedlingua.consent.keys import key_fingerprint, public_line, same_key
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.consent.site_file import SiteFile
from fedlingua.corpora.damage import doubts_about
from fedlingua.corpora.formats import SplitFiles
from fedlingua.corpora.overlap import key_check
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import Federation
from fedlingua.corpora.split import SplitRules
from fedlingua.corpora.texts import SiteText, check_documents, list_failures, read_text
from fedlingua.desk import units
from fedlingua.desk.check_result import CheckResult, Remark, run_check
from fedlingua.desk.check_settings import check_corpora, check_measuring
from fedlingua.desk.deployment.certificates import check_certificate, check_reachable
from fedlingua.desk.deployment.programs import supernode_command
from fedlingua.desk.deployment.run_words import site_steps, steps_in_words
from fedlingua.desk.deployment.service import Service, last_words
from fedlingua.desk.described import Described
from fedlingua.desk.doctor.machine import check_disk
from fedlingua.desk.outline_of_run import Outline, outline_of
from fedlingua.desk.processes import flower_environment, free_port
from fedlingua.evaluation.scores import bleu_tokenizer, check_tokenizers
from fedlingua.privacy.accounting import Release, epsilon_of, noise_for
from fedlingua.runs.plan import alone_words, planned_clusters
from fedlingua.settings.config import Settings
from fedlingua.training.pieces import chunk_size

KNOCK_S = 60.0
"""Time for the server, on another machine, to let a started SuperNode in; a refused one ends by itself."""
MARGIN = 1.3
"""Factor on estimates, for fragmentation and for the memory that other programs take meanwhile."""
LESS_MEMORY = (
    "free some, or ask for smaller tokens-per-batch (or batch-size and max-tokens), memory.micro-tokens or memory.head-chunk"
)
"""What helps if there is too little memory."""
MEASURED_SENTENCES = 64
"""Dev sentences on which the backbone's loss is measured."""
PROCESS_BYTES = 700 * 2**20
"""Memory of a client process with torch, transformers and Flower loaded, before any model."""


def check_site(
    site: SiteFile,
    settings: Settings,
    federation: Federation | None,
    expected: str,
    knock: bool,
    built: list[Outline],
    measure: bool = False,
) -> Iterator[CheckResult]:
    """Yield the results of all checks that can be made at the site, in turn.

    expected: the server's fingerprint, or "". settings: those of the run, with this site's own backbone and device. built: receives the
    backbone if it passes its check. measure: also load the backbone, for its dev loss.
    """
    # Without the federation file: text that comes with splits keeps them, other text is split so that sites agree without communicating.
    divided = any(isinstance(each.corpus, SplitFiles) for each in site.sites)
    rules = federation.rules if federation else TextRules(SplitRules("given" if divided else "shared-side"))
    texts: dict[str, SiteText] = {}
    yield run_check("corpora", lambda: _corpora(site, rules, settings, texts, federation))
    yield run_check("scores", lambda: _scores(site, settings))
    if federation:
        yield run_check("federation", lambda: _federation(site, federation))
    if not site.insecure:
        yield run_check("key", lambda: _key(site))
    if settings.overlap != "off" or site.overlap_key:
        yield run_check("overlap key", lambda: _overlap_key(site))
    if settings.trains_privately or settings.signs_privately:
        yield run_check("privacy", lambda: _privacy(site, settings))
    if settings.how.clustering == "gradients" and settings.signature_form == "raw":
        yield run_check("signature", lambda: _raw_signature(site))
    yield run_check("backbone", lambda: _backbone(site, settings, expected, built))
    if built:
        yield run_check("steps", lambda: _steps(site, texts, settings))
        yield run_check("knowledge", lambda: _knowledge(texts, settings, built[0], measure))
        yield run_check("memory", lambda: _memory(settings, built[0]))
        yield run_check("disk", lambda: _disk(site, built[0]))
    if built and federation and settings.how.travels:
        yield run_check("partners", lambda: _partners(site, settings, federation, built[0]))
    if settings.device == "cuda":
        yield run_check("GPU", lambda: look_at_gpus(settings, built))
    reached = run_check("server", lambda: check_reachable(site.address))
    if not reached.good and (knock or not site.insecure):
        yield reached
        return
    if site.insecure:
        yield CheckResult("certificate", True, "none: insecure = true, so anybody between may read and change what is sent")
    else:
        yield run_check("certificate", lambda: check_certificate(site.address, site.authority))
    if knock:
        yield run_check("server", lambda: _knock(site))


def _corpora(
    site: SiteFile, rules: TextRules, settings: Settings, read: dict[str, SiteText], federation: Federation | None
) -> str:
    check_corpora(site.sites, "check the path in site.toml")
    texts = []
    for each in site.sites:  # one by one, as the node does
        read |= read_text([each], rules)
    for name, text in read.items():
        sizes = ", ".join(f"{split} {len(pairs)}" for split, pairs in text.splits.items() if split != "base")
        dropped = ", ".join(f"{reason} {count}" for reason, count in text.account.dropped.items()) or "none"
        failures = text.account.failed_documents
        left_out = f"; documents not de-identified: {list_failures(failures)}" if failures else ""
        account = f"read {text.account.read}, kept {text.account.kept}, dropped {dropped}{left_out}"
        texts.append(f"{name} ({text.direction}): {account}; {sizes}")
        check_documents({name: text}, settings.dp_unit)
        try:
            site.check_rules(rules)
            site.limits.check_text({name: text.splits}, settings)
        except ExchangeError as error:
            raise DeploymentError(f"{texts[-1]}; {error}") from error
    words = []
    for each in site.sites:
        files = f" ({', '.join(map(str, each.corpus.paths()))})" if each.corpus else ""
        words += doubts_about(read[each.name].splits["train"], each.direction, f"site {each.name}{files}")
    words.append("" if federation else "split without the server's rules: give --federation, its file")
    account = "; ".join(filter(None, [*texts, *words]))
    return Remark(account) if any(words) else account


def _raw_signature(site: SiteFile) -> str:
    if not site.raw_gradients:
        raise DeploymentError(
            "the run asks for a raw gradient as signature, which this site does not send: ask for signature.form = 'private', or allow it "
            "in the site's file: [node] raw-gradients = true"
        )
    return "a raw gradient, from which text can be read; the site's file allows it"


def _privacy(site: SiteFile, settings: Settings) -> str:
    """Report how much of each hosted site's privacy budget the run's training and signatures will spend."""
    releases, made = list[Release](), list[str]()
    if settings.trains_privately:
        steps, shared = settings.rounds * settings.local_epochs, settings.shares_noise
        noise = noise_for(settings.dp_epsilon, settings.dp_delta, settings.private_share, steps, shared)
        releases.append(Release(noise, settings.private_share, steps, shared))
        honest = f", made in shares of {settings.privacy_min_cluster} honest sites" if shared else ""
        made.append(f"noise of {noise:.3g} clips in each of {steps} steps{honest}")
    if settings.signs_privately:
        releases.append(Release(settings.signature_multiplier))
        made.append(f"signatures with noise of {settings.signature_noise:g} clips")
    words = []
    for each in site.sites:
        ledger = site.ledger(each.name)
        if settings.trains_privately:
            ledger.check_unit(settings.dp_unit)
        after = epsilon_of([*ledger.entries(), *releases], ledger.delta)
        words.append(
            f"{each.name}: the run brings what it has spent from epsilon = {ledger.spent:.3g} to {after:.3g} of {ledger.max_epsilon:g} "
            f"(max-epsilon) at delta = {ledger.delta:g}, by {' and '.join(made)}"
        )
        if after > ledger.max_epsilon:
            smaller = "a smaller dp.epsilon" if settings.trains_privately else "more signature.noise"
            raise DeploymentError(f"{words[-1]}; ask for {smaller}, or give a larger [node] max-epsilon")
    return "; ".join(words)


def _scores(site: SiteFile, settings: Settings) -> str:
    check_measuring(settings.more_metrics, settings.comet_model, lambda text: None)
    directions = [each.direction for each in site.sites]
    translated = [direction for direction in directions if not direction.is_one_language]
    check_tokenizers(translated)
    tokenizers = {direction: f"tokenizer {bleu_tokenizer(direction.target)}" for direction in translated}
    more = f"; besides {', '.join(settings.more_metrics)}" if settings.more_metrics else ""
    return ", ".join(f"{direction}: {tokenizers.get(direction, 'perplexity, accuracy')}" for direction in directions) + more


def _federation(site: SiteFile, federation: Federation) -> str:
    """Check that the server has the site's names, directions and keys."""
    known = {known.name: known for known in federation.sites}
    for mine in site.sites:
        if mine.name not in known:
            raise DeploymentError(f"site {mine.name!r} is not in the federation file; send its join file to the operator")
        theirs = known[mine.name]
        if theirs.direction != mine.direction:
            raise DeploymentError(f"{mine.name}: the federation file says {theirs.direction}, the site's file {mine.direction}")
        if site.insecure or not theirs.public_key:
            continue
        ours = site.key.with_suffix(".pub").read_bytes()
        if not same_key(theirs.public_key, ours):
            raise DeploymentError(
                f"site {mine.name}: the federation file has the key {key_fingerprint(theirs.public_key)}, "
                f"this site has {key_fingerprint(ours.decode())}; send the join file again"
            )
    return f"{federation.name}: {', '.join(mine.name for mine in site.sites)} as the server has it"


def _partners(site: SiteFile, settings: Settings, federation: Federation, outline: Outline) -> str:
    """Report the sites with which this node's sites are averaged."""
    sent = outline.tensor_set
    clusters, mine = planned_clusters(settings, federation) or {}, [each.name for each in site.sites]
    words = alone_words(settings, clusters, sent)
    if alone := [words[name] for name in mine if name in words]:
        return Remark("; ".join(alone))
    named = [(part, *cluster) for part in clusters if sent.of_part(part) for cluster in clusters[part].items()]
    shared = [f"{part} {name}: {', '.join(sites)}" for part, name, sites in named if {*mine} & {*sites}]
    return "; ".join(shared) or "the sites' gradients decide"


def _key(site: SiteFile) -> str:
    public = site.key.with_suffix(".pub")
    for file in (site.key, public):
        if not file.is_file():
            raise DeploymentError(
                f"{file}: there is no such file; put it back, or make another site: fedlingua site init --to FOLDER"
            )
    if not same_key(public.read_text(encoding="ascii", errors="replace"), public_line(site.key).encode()):
        raise DeploymentError(f"{public} does not belong to {site.key}; send the server's operator the right one")
    _check_mode(site.key)
    for place in (site.path.parent, site.path, site.approvals, site.key.parent):
        if place.exists() and place.stat().st_mode & 0o022:
            raise DeploymentError(f"{place} can be changed by others, who could approve code and settings; chmod go-w it")
    return f"{key_fingerprint(public.read_text(encoding='ascii'))}, readable for its owner alone"


def _check_mode(file: Path) -> None:
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        raise DeploymentError(f"{file} can be read by others (mode {mode:o}); chmod 600 it")


def _overlap_key(site: SiteFile) -> str:
    if site.overlap_key is None:
        raise DeploymentError(
            "the run compares the sites' text by hashes under a key that they share, and this site's file names none; give "
            "[node] overlap-key the file that the other sites have"
        )
    check = key_check(read_overlap_key(site.overlap_key))
    _check_mode(site.overlap_key)
    return f"{check}, which has to be the same at every site; readable for its owner alone"


def _backbone(site: SiteFile, settings: Settings, expected: str, built: list[Outline]) -> str:
    outline = outline_of(settings)
    outline.backbone.codec.check([each.direction for each in site.sites])
    fingerprint = outline.backbone.fingerprint
    if expected and not fingerprint.startswith(expected):
        raise DeploymentError(
            f"backbone fingerprint {fingerprint[:16]}; the server has {expected}: another backbone, or another version of it"
        )
    built.append(outline)
    seen = ["as the server has it" if expected else "compare it with what the server's run shows"]
    computed_in(settings.precision, settings.device, seen.append)
    size = f"{outline.backbone.num_parameters / 1e6:.1f} M parameters"
    return f"{size}, backbone fingerprint {fingerprint[:16]}, {'; '.join(seen)}"


def _steps(site: SiteFile, texts: Mapping[str, SiteText], settings: Settings) -> str:
    """Describe the optimizer steps behind an update; raise ExchangeError if they are beyond the site's limits."""
    for steps in site_steps(texts, settings).values():
        site.limits.check_update(steps)
    return "; ".join(steps_in_words(texts, settings)) or "none behind anything that is sent without noise"


def _knowledge(texts: Mapping[str, SiteText], settings: Settings, outline: Outline, measure: bool) -> str:
    """Check whether the backbone knows the site's text, by languages and pieces and, if requested, by its loss on some dev sentences."""
    words, losses = list[str](), list[str]()
    for name, text in texts.items():
        some = replace(text, splits={"dev": text.splits["dev"][:MEASURED_SENTENCES]})
        words += doubts(outline.backbone, text.direction, [pair for pairs in text.splits.values() for pair in pairs])
        if measure:
            losses.append(f"{name} {(loss := _base_loss(some, settings)):.2f}")
            words += near_chance({name: loss}, outline.backbone.config.vocab_size)
    known = f"dev loss of the backbone in nats a token: {', '.join(losses)}" if losses else "its languages and their writing"
    return Remark("; ".join(words)) if words else known


def _base_loss(text: SiteText, settings: Settings) -> float:
    from fedlingua.exchange.trainable import build_trainable
    from fedlingua.training.objective import examples_nll
    from fedlingua.training.site_examples import EXAMPLE_MAKERS

    trainable = build_trainable(settings)
    examples = EXAMPLE_MAKERS[settings.task].measured(text, "dev", codec := trainable.backbone.codec, settings)
    with trainable.as_base() as model:
        nll, tokens = examples_nll(model, codec, examples, settings.precision)
    return nll / max(1, tokens)


def memory_estimate(settings: Settings, outline: Outline) -> dict[str, int]:
    """Estimate the bytes of one process that trains, by purpose: an upper guess, not a measurement."""
    backbone, config = outline.backbone, outline.backbone.config
    width = 2 if computed_in(settings.precision, settings.device) == "bf16" else 4
    stored = backbone.item_bytes if width == 2 and settings.trained_set not in ("full", "controllers") else 4
    quantized = _quantized(backbone) if settings.frozen_bits else 0
    tokens = _tokens_at_once(settings)
    frozen = settings.trained_set not in ("full", "controllers")
    chunk = chunk_size(settings.head_chunk, config.vocab_size * config.hidden_size, frozen, settings.device)
    scored = min(tokens, chunk or tokens)
    trained = outline.trained.num_parameters if settings.how.trains else 0
    controllers = settings.controllers if settings.trained_set == "controllers" else 0
    # An attention block and a feed-forward keep about this many arrays of d_model a token for the backward pass.
    arrays = sum(
        (backbone.layout.sizes(config)[part] + controllers) * (14 * config.hidden_size + 2 * stack.feed_forward)
        for part, stack in backbone.layout.stacks.items()
    )
    # Scales take a twentieth of quantized weights.
    loaded = stored * (backbone.num_parameters - quantized) + quantized * settings.frozen_bits * 21 // 160
    training = {
        # The received tensors, those that train, their gradient, Adam's two moments, and what is sent.
        "trained tensors": 6 * 4 * trained,
        "activations": tokens * arrays * width,
        # The scores over the vocabulary for every target token, or for a chunk of them, and their gradient.
        "output layer": 2 * scored * config.vocab_size * 4,
    }
    # An ensemble loads the backbone once more, after training.
    two = settings.chooses and settings.keep_ensemble and settings.task == "translation"
    second = {"second model": more} if two and (more := loaded - sum(training.values())) > 0 else {}
    return {"process": PROCESS_BYTES, "backbone": loaded + 4 * outline.num_added, **training, **second}


def _quantized(backbone: Described) -> int:
    """Return about how many numbers `frozen-bits` quantizes: the layers' matrices, except T5's tables of positions and last projections."""
    place, apart = backbone.layout.place, ("bias.weight", ".wo.weight")
    in_layers = (shape for name, shape in backbone.shapes.items() if place(name)[1] is not None and not name.endswith(apart))
    return sum(math.prod(shape) for shape in in_layers if len(shape) == 2)


def _tokens_at_once(settings: Settings) -> int:
    """Return the most padded tokens that enter the model at once in training: a batch's, or a micro-batch's (`memory.micro-tokens`)."""
    batch = settings.tokens_per_batch or settings.batch_size * settings.max_tokens
    if settings.micro_tokens > 0:
        longest = max(settings.micro_tokens, settings.max_tokens)  # a longer sentence is a batch by itself
        batch = min(settings.accumulation * batch, longest)
    return batch


def _memory(settings: Settings, outline: Outline) -> str:
    parts = memory_estimate(settings, outline)
    wanted, free = int(MARGIN * sum(parts.values())), psutil.virtual_memory().available
    sizes = ", ".join(f"{name} {units.data(size)}" for name, size in parts.items())
    estimate = f"about {units.data(wanted)} for a client process ({sizes})"
    if settings.device == "cpu" and wanted > free:
        raise DeploymentError(f"{estimate}, and {units.data(free)} are free; {LESS_MEMORY}")
    return f"{estimate}; {units.data(free)} are free"


def _disk(site: SiteFile, outline: Outline) -> str:
    # The site's own tensors of at most four rounds, the delivered ones, and Flower's copies of messages both ways.
    wanted = int(MARGIN * (8 * 4 * outline.trained.num_parameters + 100 * 2**20))
    return f"about {units.data(wanted)} for the site's state; {check_disk(site.state, wanted, little=0)}"


def look_at_gpus(settings: Settings, built: list[Outline]) -> str:
    """Report the GPU's memory and what is needed; raise an error if that is too little."""
    import torch

    if not torch.cuda.is_available():
        raise DeploymentError("device = 'cuda', but torch sees no GPU here; say device = 'cpu' in the site's file")
    check_bits(settings.frozen_bits)
    free, total = torch.cuda.mem_get_info()
    sizes = memory_estimate(settings, built[0]) if built else {}
    wanted = int(MARGIN * sum(size for name, size in sizes.items() if name != "process"))
    memory = f"{torch.cuda.get_device_name()}, {units.data(free)} of {units.data(total)} are free, about {units.data(wanted)} are wanted"
    if wanted > free:
        raise DeploymentError(f"{memory}; {LESS_MEMORY}")
    return memory


def _knock(site: SiteFile) -> str:
    """Join for a moment with a real SuperNode, which tests address, certificate, key and clock together."""
    with tempfile.TemporaryDirectory(prefix="fedlingua-knock-") as folder:
        command, home = supernode_command(site, free_port(), max_retries=1), Path(folder)
        command[command.index("subprocess")] = "process"  # nothing may run there
        with Service("the SuperNode", command, flower_environment(home), home, home / "supernode.log") as supernode:
            with contextlib.suppress(DeploymentError):  # it has ended, or takes too long
                supernode.wait_until(lambda: bool(supernode.printed()), "its start")
                supernode.wait_until(lambda: "SuperNode ID" in supernode.printed(), "its joining", KNOCK_S)
            if "SuperNode ID" in supernode.printed():
                return f"{site.address} lets this site join"
        raise DeploymentError(
            f"{site.address} did not let this site join; is its key entered there, and does the clock of this machine agree with the "
            f"server's (at most 5 s ahead or 300 s behind)? Flower says: {last_words(supernode.printed())}"
        )
