"""Table of all options of a run: name, type, default, meaning, choices, bounds, when it has an effect, the papers' values.

It is the source of `Settings` and its checks, pyproject.toml's `[tool.flwr.app.config]`, docs/options.md, shell completion, the
run hash, what a resumed run may change, and what a site approves. To add an option, add a field here and run `make options`.
`Option` lists the attributes of a field; the text below a field is its meaning.
"""

from dataclasses import dataclass
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.settings.codes import parse_code
from fedlingua.settings.methods import (
    AGGREGATIONS,
    METHODS,
    SELECTIONS,
    SERVER_OPTIMIZERS,
    check_method,
)
from fedlingua.settings.metrics import metric_names
from fedlingua.settings.options import When, among, option, options_of
from fedlingua.settings.schedules import SCHEDULES
from fedlingua.settings.tasks import TASKS
from fedlingua.settings.trackers import tracker_names

task_is = among("task", lambda s: s.task)
trains = among("tensor-set", lambda s: s.trained_set)
aggregates = among("aggregation", lambda s: s.aggregation)
server_takes = among("server.optimizer", lambda s: s.optimized_by)
sends = among("send.rule", lambda s: s.rule)

ADAPTIVE = server_takes("adam", "adamw", "yogi", "lamb")
BUFFERED = When("async.buffer > 0", lambda s: s.async_buffer > 0)
STEPPED = When("a server.optimizer", lambda s: s.optimized_by != "none")
NOT_THE_METHODS_OPTIMIZER = When("a value other than the method's", lambda s: s.optimized_by not in ("none", s.how.optimizer))
NOT_THE_METHODS_RULE = When("a value other than the method's", lambda s: s.rule != s.how.selection)
CLUSTERED = When("a method with clusters", lambda s: s.how.clustering not in ("none", "alone"))
GRADIENTS = When("method = adapter-gradients", lambda s: s.how.clustering == "gradients")
PRIVATE = GRADIENTS & When("signature.form = private", lambda s: s.signature_form == "private")
METASENDS = sends("metasend-g", "metasend-l")
FILTERED = METASENDS & When("meta.second-filter = true", lambda s: s.second_filter)
DRAWS = When("sample.least or sample.share above 0", lambda s: s.draws)
BY_SENTENCES = When("tokens-per-batch = 0", lambda s: not s.tokens_per_batch)
BY_SIZE = When("aggregation = fed-avg, or a centralized method", lambda s: s.how.pooled or s.aggregation == "fed-avg")
TRAVELS = When("a method whose tensors travel", lambda s: s.how.trains and s.how.travels)
CODED = TRAVELS & When("with auto one whose sites send all of a change", lambda s: s.send_code != "auto" or s.sends_change)
CHOOSES = When("keep.choose = true", lambda s: s.chooses)
PRIVATELY = TRAVELS & When("dp.epsilon above 0", lambda s: s.dp_epsilon > 0)
SECURE = When("privacy.sum = secure", lambda s: s.sums_securely)
NOT_SGD = When("optimizer = adam or adamw", lambda s: s.optimizer != "sgd")


def rates(given: str) -> None:
    """Raise ConfigError for text that is not a list of numbers above 0."""
    try:
        wrong = not all(0 < float(rate) < float("inf") for rate in given.split(","))
    except ValueError:
        wrong = True
    if wrong:
        raise ConfigError(f"keep.rates = {given!r}; wanted numbers above 0 with commas, as in '1,0.3'")


def check_frozen_bits(given: int) -> None:
    """Raise ConfigError for a number of bits that bitsandbytes has no form for."""
    if given not in (0, 4, 8):
        raise ConfigError(f"frozen-bits = {given}; wanted 8 or 4, or 0 for weights as precision has them")


SERVERS_OWN: dict[str, Any] = {"resumable": True, "approved": False}
"""Attributes of options that concern the server alone: its paths, deadlines and stored files."""


@dataclass(frozen=True)
class Run:
    """What runs, with which sites, where, and for how long."""

    task: str = option("translation", choices=TASKS, off=("translation",))
    """What sites train for: translation, or the prediction of masked pieces of text, in one language per site."""
    method: str = option("adapter-families", choices=tuple(METHODS), check=check_method)
    """The method, a row of the papers' tables: base; centralized-model, centralized-adapter; adapter-local;
    model-fed; adapter-fed, adapter-random, adapter-gradients, adapter-families. With the full model: pmfl, the
    name of every send.rule, and server-sgd, server-adam, server-adamw, server-yogi, server-lamb. On pooled text,
    in simulation only: centralized, centralized-public (sites with public = true), silo-NAME (one site)."""
    federation: str = option("experiments/federations/phrasebook_trades.toml", approved=False)
    """The federation file, which lists the sites: a path, relative to the experiment file or to the app; the default: the demo's."""
    backbone: str = option("demo")
    """The model to start from: "demo", a recipe that `fedlingua pretrain` has trained, a hub id, or a folder."""
    backbone_revision: str = option("")
    """Revision of a hub id; "": the one that this project pins."""
    backbone_weights: str = option("published", choices=("published", "random"), off=("published",), liu="published")
    """published: the backbone's own weights; random: only its architecture and tokenizer, to train from scratch."""
    start_from: str = option("", off=("",), when=TRAVELS, approved=False)
    """Folder of a run, relative to the experiment file or to the current folder: the first round begins with the tensors that its
    last one stored; "": with the backbone's. Both runs need the same backbone and added layers."""
    data_dir: str = option("", **SERVERS_OWN)
    """Folder for relative corpus paths; "": the federation file's, if the text lies there, or the current one."""
    run_dir: str = option("", **SERVERS_OWN)
    """The run folder; "": a folder in the user's data directory."""
    resume: bool = option(False, **SERVERS_OWN)
    """Resume the run in run-dir after its last complete round."""
    strategy: str = option("", liu="", chu="")
    """A class of your own, "my_file:MyStrategy(q=0.2)", or of Flower's, "flwr.serverapp.strategy:FedMedian"; "": the method's."""
    client: str = option("", off=("",))
    """A class of your own, "my_file:MyClient(q=0.2)"; "": the task's."""
    layers: str = option("", off=("",), when=TRAVELS, listed=True)
    """Layers of your own, separated by commas or as a list: ["my_file:MyLayer(q=0.2)"]. Each changes what a round sends, at the
    site or at the server, in the order given."""
    seed: int = option(2022, least=0)
    """Seed of all randomness: order of text, initial tensors, dropout, random thresholds."""
    rounds: int = option(16, least=1, liu=5)
    """Maximum number of rounds."""
    patience: int = option(0, least=0, approved=False, liu=0, chu=0)
    """Stop when the dev loss has not improved by min-gain for this many rounds; 0: never."""
    min_gain: float = option(0.0, least=0, approved=False)
    """Smallest relative fall of the dev loss that counts as an improvement, for patience."""
    best_by: str = option("examples", choices=("examples", "tokens", "last"), liu="examples", manoel="last")
    """Which round's model is the result: the round with the lowest dev loss, with sites weighted by examples or
    by tokens, or the last round, whatever its loss (patience then weights sites by examples)."""
    threads: int = option(1, least=1)
    """Torch threads of a client; another number changes the last bits of results."""
    precision: str = option("fp32", choices=("fp32", "bf16", "tf32"))
    """Precision of the arithmetic; tf32: a GPU multiplies matrices of fp32 numbers in TF32. With any value, the
    tensors that train or travel and the optimizer's state are fp32. A CPU computes tf32 in fp32, and bf16 too
    unless it has bf16 instructions (avx512_bf16, amx_bf16, ARM's bf16); a message says so."""
    device: str = option("cpu", choices=("cpu", "cuda"))
    """The device that clients compute on."""
    frozen_bits: int = option(0, check=check_frozen_bits, off=(0,))
    """Bits of a frozen weight in the backbone's layers, on a GPU, with bitsandbytes (an extra): 8 (LLM.int8, Dettmers et
    al. 2022) or 4 (NF4, Dettmers et al. 2023); 0: as precision has them. Embeddings, head, norms and all that trains stay
    as they are. Not with full or controllers, which train all weights."""
    overlap: str = option("off", choices=("off", "report", "remove"), off=("off", "report"))
    """Compare sites' sentences by keyed hashes before the first round. report: write the numbers of shared sentences
    to overlap.json; remove: also leave out dev and test pairs with a sentence that another site trains on."""
    keep_translations: int = option(0, key="keep-translations", least=0, resumable=True)
    """Number of dev sentences, from the first on, that each site translates after every round for the report. The
    site stores them in its own folder (translations-by-round/). No tensor, score or byte sent changes."""
    track: str = option("", check=tracker_names, listed=True, **SERVERS_OWN)
    """Experiment trackers that `fedlingua run` and `suite` log rounds and scores to, separated by commas:
    tensorboard, mlflow, trackio (each an extra of that name). `fedlingua track` logs other runs."""


@dataclass(frozen=True)
class Training:
    """How a site trains in a round."""

    tensor_set: str = option("", choices=("", "adapters", "full", "controllers", "lora"), liu="", chu="")
    """The tensors that train and travel; "": the method's. controllers: everything trains, the added layers travel."""
    batch_size: int = option(16, least=1, when=BY_SENTENCES, liu=8, chu=2)
    """Sentences in a batch."""
    group_by_length: bool = option(True, when=BY_SENTENCES, off=(False,), liu=False, chu=False)
    """Make batches of sentences of similar length, which saves padding; false: of sentences at random, as the papers do."""
    accumulation: int = option(1, least=1, liu=16, chu=1)
    """Batches per optimizer step."""
    local_epochs: int = option(1, least=1, liu=1, chu=1)
    """Passes over a site's training text in a round."""
    whole_steps: bool = option(True, when=BY_SENTENCES, liu=True)
    """Cut the training text to a multiple of batch-size x accumulation, as the paper's code does."""
    tokens_per_batch: int = option(0, least=0, off=(0,))
    """Make batches of sentences of similar length with at most this many tokens, padding included; 0: use
    batch-size."""
    max_tokens: int = option(128, least=4, liu=256)
    """Cut source and target sentences to this many tokens. For masked-language: length of a sequence, into which
    sentences are packed."""
    sampling_temperature: float = option(1.0, least=1, when=BY_SIZE, off=(1.0,))
    """Sites in fed-avg, and the texts that a centralized method draws from, are weighted by their size to the
    power of 1 / sampling-temperature; 1: in proportion to size; above 1: more evenly."""
    optimizer: str = option("adam", choices=("adam", "adamw", "sgd"))
    """A site's optimizer."""
    optimizer_state: str = option("fresh", choices=("fresh", "kept"))
    """What happens to the optimizer's state between rounds. fresh: it is reset; kept: it is carried over, even if a
    round begins with other tensors, and never sent."""
    optimizer_epsilon: float = option(1e-8, least=0, when=NOT_SGD)
    """Added to the denominator of adam and adamw."""
    weight_decay: float = option(0.0, least=0)
    """Weight decay of a site's optimizer."""
    learning_rate: float = option(0.01, least=0)
    """A site's learning rate; 0: the paper's, which is 5e-5 for full and controllers and 1e-3 otherwise."""
    schedule: str = option("constant", choices=tuple(SCHEDULES), off=("constant",))
    """How a site's learning rate changes over its steps in all rounds."""
    warmup_steps: int = option(0, least=0, off=(0,))
    """Number of steps at the start of the run over which the rate rises to learning-rate."""
    clip_norm: float = option(0.0, least=0, off=(0.0,))
    """Clip a step's gradient to this L2 norm, taken over all tensors that train; 0: never."""
    label_smoothing: float = option(0.0, least=0, below=1, off=(0.0,))
    """Share of the target probability that is spread over the whole vocabulary."""
    mask_share: float = option(0.15, above=0, most=1, when=task_is("masked-language"))
    """Share of a sequence's pieces that are masked and predicted."""
    sample_least: int = option(0, least=0, manoel=500)
    """Number of examples that a site draws for a round, or sample.share of its text if that is more. If both are
    0, the site uses every example once, without a draw."""
    sample_share: float = option(0.0, least=0, manoel=0.8e-4)
    """Share of its examples that a site draws for a round; see sample.least."""
    sample_replacement: bool = option(True, when=DRAWS, off=(True,))
    """true: draw with replacement; false: go through the whole text in a random order that continues from round to
    round, so that every example comes once per epoch (the centralized row of Manoel et al., with
    whole-steps = false)."""
    micro_tokens: int = option(0, key="memory.micro-tokens", least=-1, off=(0,))
    """Compute a step in micro-batches of similar length with at most this many tokens, padding included; a longer
    sentence is a micro-batch by itself. The step is the same, with less padding. 0: on a CPU, with a model of 5
    million parameters or more, split each batch where that saves padding; -1: never split."""
    head_chunk: int = option(0, key="memory.head-chunk", least=-1, off=(0,))
    """Number of predicted tokens that the output head scores at a time, in training and for the dev loss. Loss
    and gradient are the same. 0: 128 on a CPU and 2,048 on a GPU if the head is frozen and has 16.8 million
    parameters or more, otherwise a whole batch; -1: a whole batch."""
    gradient_checkpointing: bool = option(False, key="memory.gradient-checkpointing", off=(False,))
    """Recompute activations in the backward pass instead of storing them: less memory, slower, same numbers."""


@dataclass(frozen=True)
class AddedLayers:
    """What is added to the backbone: adapters, low-rank matrices (LoRA), controllers."""

    adapter_layers: str = option("all", choices=("all", "input-end", "middle", "output-end"))
    """Layers in which small sets (adapters, lora) train: all, or a third of each stack."""
    adapter_dim: int = option(32, least=1, when=trains("adapters"), liu=64)
    """Neurons in an adapter's bottleneck."""
    lora_rank: int = option(8, least=1, when=trains("lora"))
    """Rank of the added matrices."""
    lora_alpha: float = option(16.0, when=trains("lora"))
    """The added matrices are scaled by alpha / rank."""
    lora_targets: str = option("q_proj,v_proj", when=trains("lora"), listed=True)
    """Linear layers that get the matrices, by the ends of their names, separated by commas. q_proj, k_proj and v_proj also
    match the names of queries, keys and values in other model families."""
    controllers: int = option(4, least=1, when=trains("controllers"), liu=4)
    """Layers added to each of encoder and decoder."""


@dataclass(frozen=True)
class Own:
    """Which parts of a model belong to one site."""

    pull: float = option(0.0, least=0, off=(0.0,))
    """The paper's mu: training adds pull / 2 x |w - mean|^2 to its loss, where w is the federation's model as the site
    trains it (FedProx, Li et al. 2020)."""


@dataclass(frozen=True)
class Clusters:
    """Which sites are averaged together, and the gradient signatures that adapter-gradients clusters."""

    cluster_by: str = option("group", choices=("group", "family", "given"), when=CLUSTERED, liu="group")
    """Which sites form a cluster under adapter-families: those of a group (Germanic, ...), a family (Indo-European, ...), or
    [clusters] in the federation file (given)."""
    cluster_least: int = option(2, least=1, off=(1,), when=CLUSTERED)
    """Fewest sites in a cluster, for group and family: a smaller cluster is merged with the smallest other one of its
    family or, if there is none, with the smallest of all. 1: a site without relatives is averaged with no other."""
    cluster_parts: str = option("both", choices=("both", "encoder", "decoder"), when=CLUSTERED)
    """The part that is clustered; the other part is averaged over all sites."""
    num_clusters: int = option(0, key="cluster.number", least=-1, when=CLUSTERED, liu=0)
    """Number of clusters of each part, for adapter-random and adapter-gradients; 0: as many as cluster.by gives; -1:
    chosen by silhouette (gradients only)."""
    signature_adapter: str = option("encoder.0.self_attn,decoder.-1.fc2", when=GRADIENTS)
    """The adapters whose gradients are a site's signatures: part.layer.place, with -1 for the last layer. The
    first clusters the encoder, the second the decoder; a single one clusters both. The defaults separate the
    phrasebook's groups best (experiments/results/benchmarks/kept.jsonl)."""
    signature_form: str = option("raw", choices=("raw", "private"), when=GRADIENTS)
    """raw: the gradient itself, which can leak text; private: projected, clipped and noised."""
    signature_dim: int = option(64, least=1, when=PRIVATE)
    """Dimensions of a private signature, at most 64: noise grows with each."""
    signature_clip: float = option(0.2, above=0, when=PRIVATE)
    """L2 norm that a sentence's projected gradient is clipped to; the default is about the median on the
    phrasebook."""
    signature_noise: float = option(2.0, above=0, when=PRIVATE)
    """Standard deviation of the noise on the sum, as a multiple of signature.clip."""
    signature_delta: float = option(1e-5, above=0, below=1, when=PRIVATE)
    """Delta of the (epsilon, delta) guarantee in signatures.json, for all signatures together."""


@dataclass(frozen=True)
class Aggregation:
    """How the server combines a cluster's updates, and what it does with those that look wrong."""

    aggregation: str = option("fed-mean", choices=AGGREGATIONS, chu="fed-avg")
    """How a cluster's updates are averaged: every site counts the same (fed-mean, eq. 3 of Liu et al.), by its
    sentences (fed-avg, eq. 2), more the lower its training loss (by-loss, Dimitriadis et al. 2021), or the same
    with updates cut to one length (norm-clip)."""
    clip_update_norm: float = option(0.0, key="robust.clip-norm", least=0, when=aggregates("norm-clip"))
    """Scale longer updates down to this L2 norm before averaging; 0: to the round's median. Under secure sums each site
    does so, which needs a number above 0."""
    max_site_share: float = option(
        0.5,
        key="robust.max-share",
        least=0.5,
        when=aggregates("fed-avg", "by-loss"),
        off=(1.0,),
        approved=False,
        liu=1.0,
        chu=1.0,
        manoel=1.0,
    )
    """The largest weight of one site of three or more in its cluster's mean, whatever size or loss it
    reports; 1: no bound."""
    max_update_norm: float = option(0.0, key="robust.max-norm", least=0, approved=False, liu=0.0, chu=0.0)
    """Refuse an update whose L2 distance from the tensors that the site received is larger; 0: no bound."""
    max_update_ratio: float = option(1.9, key="robust.max-ratio", least=0, approved=False, liu=0.0, chu=0.0, manoel=0.0)
    """Leave out an update whose root mean square change exceeds this multiple of what the other updates and
    the number of steps predict; from 0.8 of that bound on, scale the update down. Also leave out a change that
    no honest site can reach, one that is next to nothing, and one that opposes the other sites'. The bound is 1.25 times
    as high for single tensors and, under Adam, at least twice rate x steps, and 1.3 times as high for a site with more than
    twice or less than half the steps of every other; 0: none of this. Under secure sums, where no update is seen, the
    mean's length and the dev loss after it are bounded unless this is 0."""
    max_bad_replies: int = option(3, key="robust.max-bad-replies", least=0, **SERVERS_OWN)
    """Set a site aside after this many refused replies in a row; 0: never."""
    server_optimizer: str = option("", choices=("", *SERVER_OPTIMIZERS), when=NOT_THE_METHODS_OPTIMIZER, liu="", chu="")
    """What turns a cluster's mean into new tensors; "": the method's optimizer; none: the mean itself."""
    server_learning_rate: float = option(3e-4, above=0, when=STEPPED, manoel=3e-4)
    """The server optimizer's learning rate."""
    server_schedule: str = option("constant", choices=tuple(SCHEDULES), when=STEPPED, manoel="linear")
    """How that rate changes over rounds; linear: it falls by a thousandth of the first one in every round."""
    server_momentum: float = option(0.9, least=0, below=1, when=server_takes("sgd"))
    """Momentum of sgd: the share of the previous step that it repeats."""
    server_beta2: float = option(0.999, least=0, below=1, when=ADAPTIVE)
    """Decay rate of the running mean of their squares."""
    server_epsilon: float = option(1e-8, above=0, when=ADAPTIVE)
    """Added to denominators. Reddi et al. 2021 use 1e-3 with a beta2 of 0.99, which damps single updates."""
    server_weight_decay: float = option(0.0, least=0, when=STEPPED)
    """Weight decay of the server's optimizer."""


@dataclass(frozen=True)
class Sending:
    """What a site sends of its update. Equations are of Chu et al. 2024 (MetaSend)."""

    selection: str = option("", key="send.rule", choices=("", *SELECTIONS), when=NOT_THE_METHODS_RULE, liu="")
    """Which part of its update a site sends; "": the method's rule; -g: what deviates most; -l: what deviates
    least. Under secure sums all sites send the same tensors, by how the mean deviated in the round before."""
    send_code: str = option(
        "auto", check=lambda text: text == "auto" or parse_code(text), when=CODED, off=("none",), liu="none", chu="none"
    )
    """How a site's changes are compressed on the uplink: none (float32), lossless, 2bit to 8bit, or sign. With
    "top 0.1" after it, only the tenth of the numbers that changed most is sent; with "rank 4", two factors of
    every matrix. Without a send.rule, what a code leaves out is added to a later update. auto: 4bit if a site sends its whole change, none
    under secure sums, which allow 2bit to 8bit."""
    send_code_down: str = option(
        "same", check=lambda text: text == "same" or parse_code(text), when=TRAVELS, off=("same",), liu="same", chu="same"
    )
    """How the server's changes are compressed on the downlink, with the same codes; "same": as send.code."""
    send_share: float = option(0.5, above=0, most=1, when=sends("rand-send", "top-k"))
    """Share that is sent: of tensors (rand-send) or of numbers (top-k)."""
    fixed_threshold: str = option("0.5", key="send.fixed-threshold", when=sends("fixed-g", "fixed-l"))
    """A number, or "median": the median of a site's deviations in the round; under secure sums, of the mean's."""
    random_threshold: str = option(
        "unit", key="send.random-threshold", choices=("unit", "range"), when=sends("random-g", "random-l")
    )
    """Draw the threshold from [0, 1] (unit), or from the range of a site's deviations in the round; under secure
    sums, of the mean's."""
    apf_window: int = option(4, least=1, when=sends("apf"), chu=4)
    """Rounds over which a number's movement is judged."""
    apf_threshold: float = option(0.3, least=0, below=1, when=sends("apf"))
    """Freeze a number while its net movement is below this share of the sum of its steps. With a window of 4, a
    number that oscillates has 0.14; a lower threshold freezes only numbers that do not move."""
    meta_estimator: str = option("own", choices=("own", "loss"), when=METASENDS)
    """How the derivative of the loss with respect to the threshold is estimated: from the effect of each site's
    update on its own dev loss (own), or by trying thresholds (loss)."""
    meta_scale: str = option("first", choices=("first", "round"), when=METASENDS)
    """The threshold is a multiple of the median deviation of the first round, or of each round."""
    meta_frozen: bool = option(False, when=METASENDS)
    """Do not train the network that sets the threshold."""
    meta_neurons: int = option(100, least=1, when=METASENDS)
    """Neurons in the hidden layer of that network."""
    meta_learning_rate: float = option(1e-3, least=0, when=METASENDS, chu=1e-3)
    """Adam's learning rate for that network."""
    meta_batches: int = option(16, least=1, when=METASENDS)
    """Number of random dev batches of each site on which a round's model is measured (b)."""
    meta_batch_size: int = option(2, least=1, when=METASENDS, chu=2)
    """Sentences in each of these batches."""
    meta_bytes_weight: float = option(0.0, least=0, when=METASENDS, chu=0.0)
    """Weight (lambda) of the share of numbers sent, which is added to the dev loss."""
    second_filter: bool = option(False, key="meta.second-filter", when=FILTERED)
    """Let a second network leave out further tensors that pass the threshold, by their magnitude."""


@dataclass(frozen=True)
class Scoring:
    """What is measured, and on which text."""

    evaluate_every: int = option(1, least=1)
    """Measure the dev loss after every Nth round, and after the last."""
    evaluate_share: float = option(1.0, above=0, most=1)
    """Share of each site's dev text on which that loss is measured, the same sentences in every round. Manoel et al.
    draw 10 % of test anew every 5 rounds."""
    beam: int = option(5, least=1, when=task_is("translation"), liu=5)
    """Number of beams in the search for translations."""
    max_decode_tokens: int = option(128, least=4, when=task_is("translation"), liu=256)
    """Maximum length of a translation in tokens."""
    no_repeat_ngram: int = option(0, least=0, off=(0,), when=task_is("translation"))
    """No translation contains the same sequence of this many tokens twice; 0: no such rule. Models trained on
    little text repeat themselves, which hides what they know from BLEU."""
    score_split: str = option("test", choices=("test", "dev"), liu="test", chu="test")
    """Text that is scored at the end: test, or dev while settings are being chosen."""
    metrics: str = option("bleu,chrf", check=metric_names, off=("bleu,chrf",), listed=True)
    """What each site measures at the end, separated by commas; besides these two: chrf++, ter, length-ratio,
    off-target, comet."""
    comet_model: str = option("wmt22-comet-da", off=("wmt22-comet-da",))
    """COMET's model: a name on the hub, or the path of a checkpoint (.ckpt) that every site has."""


@dataclass(frozen=True)
class Keeping:
    """What each site keeps at the end."""

    keep_choose: bool = option(True, when=TRAVELS, off=(False,), liu=False, chu=False, manoel=False)
    """Whether each site chooses by its dev text which model it keeps at the end of a run; false: it keeps
    what the server sends."""
    keep_by: str = option("both", choices=("loss", "chrf", "both"), when=CHOOSES & task_is("translation"))
    """What has to show that a candidate is better than both the base and the site's model trained alone: dev
    loss, chrF of the translated dev text, or both (loss, unless chrF shows the opposite). Without translations:
    the loss. A gain is shown if its 95 % interval, by paired bootstrap over dev sentences, is above 0."""
    keep_passes: int = option(0, least=0, when=CHOOSES)
    """Maximum number of passes that a site trains further, starting from the federation's model; 0: as many as all
    rounds make. The model trained alone gets these passes and those of all rounds. A pass is as long as a round's
    training, or covers the whole text if rounds draw parts of it without replacement."""
    keep_patience: int = option(2, least=1, when=CHOOSES)
    """After this many passes in a row without a lower dev loss, a site continues from its best pass with the next
    of keep.rates, or stops."""
    keep_rates: str = option("1,0.3", check=rates, when=CHOOSES)
    """Learning rates of these passes, in order, as multiples of the run's, separated by commas."""
    keep_ensemble: bool = option(True, when=CHOOSES & task_is("translation"), off=(False,))
    """Whether a site may keep two models, one of them trained alone, whose probabilities of each next token are
    averaged, if dev text shows that they translate better than one; translating then takes twice as long."""
    keep_minutes: float = option(0.0, least=0, when=CHOOSES, off=(0.0,))
    """Minutes after which a site starts no further pass; 0: no bound."""


@dataclass(frozen=True)
class Waiting:
    """Which sites the server asks, and how long it waits for them."""

    sites_per_round: float = option(0.0, least=0, off=(0.0,), liu=0.0, chu=0.0)
    """Number of sites that train in a round or, below 1, their share; 0: all. They are drawn before the round, each
    equally often and from every cluster in proportion; a cluster without a drawn site stays as it is. All sites
    measure the dev loss, in separate messages (see evaluate-every)."""
    async_buffer: int = option(0, least=0, off=(0,), when=TRAVELS)
    """End a round once this many sites have sent their updates (FedBuff, Nguyen et al. 2022); 0: wait for all. The
    others go on training, and their changes count in the round in which they arrive, weighted by age. The order of
    replies changes the result. Each site measures the dev loss when it is not training."""
    async_age_exponent: float = option(-0.5, least=-10, most=1, when=BUFFERED)
    """Power to which (1 + t) is raised to weight a change that began t rounds ago: -0.5 as in FedBuff, 0 to give it
    full weight, above 0 to make up for rounds that a slow site has missed."""
    quorum: float = option(1.0, above=0, most=1, liu=1.0, chu=1.0, **SERVERS_OWN)
    """Share of the asked sites that must reply; in training, of those drawn for the round."""
    below_quorum: str = option("fail", choices=("fail", "wait", "go-on"), **SERVERS_OWN)
    """What to do if too few sites reply in time: fail (the run can be resumed), wait (ask those sites again), go-on
    (skip the round; sites that are away have the phase's deadline to come back)."""
    wait_s: float = option(86400.0, least=0, **SERVERS_OWN)
    """Seconds to wait under below-quorum = "wait"."""
    deadline_s: float = option(3600.0, key="deadline.phase-s", least=0.001, **SERVERS_OWN)
    """Seconds for each phase: joining, training, evaluating, finishing. A request that trains and evaluates has twice as long."""
    join_deadline_s: float = option(0.0, key="deadline.join-s", least=0, **SERVERS_OWN)
    """Seconds for all sites to join at the start; 0: deadline.phase-s."""
    keep_deadline_s: float = option(0.0, key="deadline.keep-s", least=0, **SERVERS_OWN)
    """Further seconds for sites to choose which model they keep; 0: ten times deadline.phase-s."""


@dataclass(frozen=True)
class Privacy:
    """What the server may see of an update."""

    privacy_sum: str = option("plain", choices=("plain", "secure"), off=("plain",), when=TRAVELS)
    """secure: the server learns the sum of a cluster's updates and of no smaller group (Bonawitz et al. 2017);
    plain: it sees each site's."""
    privacy_scores: str = option("sum", choices=("sum", "sites"), when=SECURE)
    """sum: the server learns dev losses and scores as sums over all sites, too; sites: it sees those of each site."""
    privacy_min_cluster: int = option(3, least=2, when=SECURE)
    """Fewest sites in a secure sum, at the start and after sites have dropped out. In a sum of two, each learns the
    other's update, so both sites' files have to allow it ([limits] min-cluster = 2)."""
    dp_epsilon: float = option(0.0, least=0, most=50, when=TRAVELS, off=(0.0,))
    """Differential privacy: the epsilon of an (epsilon, delta) guarantee on what all rounds together reveal of a
    single sentence pair or document (dp.unit) of a site; 0: no guarantee. 8 is a common choice, 2 a strict one. The
    noise follows from epsilon. Each local epoch is one step, which takes every sentence or document with probability
    sample.share (0: takes all); batch-size only bounds its memory, and accumulation and whole-steps have no effect.
    A site refuses to spend more than the max-epsilon of its file."""
    dp_delta: float = option(1e-5, above=0, most=0.01, when=PRIVATELY)
    """The delta of that guarantee; choose it well below 1 / (number of a site's sentences or
    documents)."""
    dp_clip: float = option(0.1, above=0, when=PRIVATELY)
    """L2 norm to which each sentence's or document's gradient, of its mean loss per token, is clipped; the noise of a step is a
    multiple of it. The default is about the median norm of small tensor sets on the phrasebook; gradients of a
    whole model are ten times as long."""
    dp_noise: str = option("site", choices=("site", "shares"), when=PRIVATELY, off=("site",))
    """Where the noise is made. site: each site adds all of it to its own gradient, and the guarantee relies on nobody
    else. shares: each adds a share to what it sends into a secure sum, and the sum over privacy.min-cluster sites
    has the whole; it relies on so many sites of a sum being honest. A round is one step against the mean gradient of
    all text: give server.optimizer = "adam". A site's own optimizer is that of the last phase."""
    dp_unit: str = option("sentence", choices=("sentence", "document", "site"), when=PRIVATELY, off=("sentence",))
    """What the guarantee protects: sentence, a single sentence pair; document, all of a document's pairs together, where
    every site's corpus names its documents (documents = FILE). site is refused, since with fewer than hundreds of
    sites its noise would drown every update."""


@dataclass(frozen=True)
class Sections(Run, Training, AddedLayers, Own, Clusters, Aggregation, Privacy, Sending, Scoring, Keeping, Waiting):
    """All options."""


SECTIONS = Sections.__bases__
OPTIONS = options_of(SECTIONS)
"""Key -> option."""
KEYS = {said.attribute: key for key, said in OPTIONS.items()}
"""Attribute of `Settings` -> key."""
AS_ARGUMENTS = {key.replace(".", "_").replace("-", "_"): key for key in OPTIONS}
"""A key as the name of a Python function's argument, such as adapter_dim -> key."""
MAY_CHANGE = tuple(key for key, said in OPTIONS.items() if said.resumable)
"""Keys that a resumed run may change: paths, deadlines, what is stored for inspection, trackers."""
CHANGES_WITHOUT_ASKING = tuple(key for key, said in OPTIONS.items() if not said.approved)
"""Keys that need no approval of a site: they affect neither what runs there nor what leaves it."""
