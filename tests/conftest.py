"""What many tests stand on: a backbone small enough to reason about, copied anew for each test that changes it."""

import gc
import importlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from ctypes import c_longlong
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from transformers import M2M100Tokenizer

from fedlingua.backbones.load import Backbone
from fedlingua.common import cache, devices
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.runs.checkpoints import Checkpoints
from fedlingua.settings.config import Scalar
from fedlingua.settings.conflicts import QUANTIZED
from fedlingua.settings.experiment import default_run_config
from fedlingua.training.translation import PairExample, encode_pairs
from fedlingua_demo import phrasebook
from tests.browser import Browser, opened_browser
from tests.encoders import WORDS, build_xlmr
from tests.federations import FOUR_SITES, FOUR_TEXTS
from tests.once import copies_of, make_once

if TYPE_CHECKING:
    from fedlingua.runs.folder import RunFolder
    from tests.in_process import InProcessGrid

    Run = tuple[RunFolder, InProcessGrid]

# The same examples on every machine, however busy it is.
settings.register_profile("project", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")


@pytest.fixture(scope="session", autouse=True)
def _own_base_results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests' backbones make of texts is made in these tests, and leaves nothing in the user's cache."""
    folder = tmp_path_factory.mktemp("base-results")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fedlingua.common.cache.base_results_dir", lambda: folder)
        yield


@pytest.fixture(autouse=True)
def _trained_alone_anew() -> Iterator[None]:
    """No test finds a model that another one has trained alone."""
    yield
    shutil.rmtree(cache.base_results_dir().with_name("alone"), ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    """Most of what hundreds of small runs have in common is made in the first of them: tests/once.py."""
    with pytest.MonkeyPatch.context() as patched:
        make_once(patched)
        yield


@pytest.fixture
def native_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that computes in bf16, whichever this is."""
    monkeypatch.setattr(devices, "cpu_flags", lambda: frozenset({"avx512_bf16"}))


@pytest.fixture
def all_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run keeps the checkpoint of every round from the first on."""
    prune = Checkpoints.prune
    monkeypatch.setattr(Checkpoints, "prune", lambda checkpoints, keep: prune(checkpoints, {*keep, *range(1, max(keep))}))


@pytest.fixture
def quantizes_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU passes for the GPU that frozen-bits wants; what bitsandbytes computes there is real."""
    pytest.importorskip("bitsandbytes", reason="needs the extra bitsandbytes")
    monkeypatch.delitem(QUANTIZED, "device")
    # Once such a CPU has measured a dev loss, bitsandbytes' layers of 4 bits would pass no gradient.
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: False)
    # With AVX-512, rows shorter than a block, as small models have them, would get the scales of others: the same numbers as one row.
    native = importlib.import_module("bitsandbytes.backends.cpu.ops").lib
    for name in ("cdequantize_blockwise_cpu_nf4_fp32", "cdequantize_blockwise_cpu_nf4_bf16"):
        rows = getattr(native, name)

        def one_row(*given: Any, rows: Any = rows) -> Any:
            return rows(*given[:4], c_longlong(1), c_longlong(given[4].value * given[5].value))

        monkeypatch.setattr(native, name, one_row)


@pytest.fixture(scope="session")
def phrases() -> dict[str, list[str]]:
    """300 meanings in nine languages; line i is the same meaning in each."""
    return phrasebook.base_corpus(300, 1)


@pytest.fixture(scope="session")
def tiny_backbone(phrases: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of an M2M-100 with random weights: d_model 32, 2+2 layers, 2 heads, feed-forward 64."""
    directory = tmp_path_factory.mktemp("backbones") / "tiny"
    sentences = [sentence for lines in phrases.values() for sentence in lines]
    tokenizer = build_tokenizer(sentences, phrasebook.LANGUAGES, 300, directory)
    size = ModelSize(d_model=32, encoder_layers=2, decoder_layers=2, heads=2, ffn_dim=64, vocab_size=300, max_positions=64)
    build_model(size, tokenizer, seed=7).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def least_backbone(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the same with 1+1 layers, for whole runs: what they cost is mostly calls of layers."""
    directory = tmp_path_factory.mktemp("backbones") / "least"
    shutil.copytree(tiny_backbone, directory)
    size = ModelSize(d_model=32, encoder_layers=1, decoder_layers=1, heads=2, ffn_dim=64, vocab_size=300, max_positions=64)
    build_model(size, M2M100Tokenizer.from_pretrained(directory), seed=7).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def family_folder(phrases: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds the folder of a small model of a family, by its name in tests/families.py, when it is first asked for."""
    from tests.families import ENCODERS, TRANSLATING

    top = tmp_path_factory.mktemp("families")
    sentences = [line for language in ("de", "fr", "es") for line in phrases[language][:100]]

    def folder(name: str) -> Path:
        if not (top / name).is_dir():
            (top / name).mkdir()
            {**TRANSLATING, **ENCODERS}[name](top / name, sentences)
        return top / name

    return folder


@pytest.fixture(scope="session")
def _tiny_copies(tiny_backbone: Path) -> Callable[[], Backbone]:
    return copies_of(tiny_backbone, "tiny")


@pytest.fixture
def backbone(_tiny_copies: Callable[[], Backbone]) -> Backbone:
    """The tiny backbone in memory of this test's own."""
    return _tiny_copies()


@pytest.fixture(scope="session")
def tiny_encoder(phrases: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of an XLM-R with random weights: d_model 32, 2 layers, 2 heads, feed-forward 64; a word of the phrasebook is a piece."""
    words = sorted({word for lines in phrases.values() for line in lines for word in line.split()})
    return build_xlmr(tmp_path_factory.mktemp("backbones") / "tiny-encoder", [*WORDS, *words])


@pytest.fixture(scope="session")
def _encoder_copies(tiny_encoder: Path) -> Callable[[], Backbone]:
    return copies_of(tiny_encoder, "tiny-encoder")


@pytest.fixture
def encoder(_encoder_copies: Callable[[], Backbone]) -> Backbone:
    """The tiny encoder in memory of this test's own."""
    return _encoder_copies()


@pytest.fixture
def examples(backbone: Backbone, phrases: dict[str, list[str]]) -> list[PairExample]:
    """21 German-French pairs, as ids: no multiple of 8."""
    pairs = [Pair(*both) for both in zip(phrases["de"][:21], phrases["fr"][:21], strict=True)]
    return encode_pairs(pairs, Direction("de", "fr"), backbone.codec, 32)


@pytest.fixture
def run_config() -> dict[str, Scalar]:
    """A whole run config: the defaults."""
    return default_run_config()


@pytest.fixture
def tiny_run_config(tiny_backbone: Path) -> dict[str, Scalar]:
    """A whole run config: the defaults, on the tiny backbone, as short as a run can be."""
    return short_run_config(tiny_backbone) | {"max-decode-tokens": 16}


@pytest.fixture
def least_run_config(least_backbone: Path) -> dict[str, Scalar]:
    """The same on the least backbone, with the shortest translations: for whole runs."""
    return short_run_config(least_backbone)


def short_run_config(backbone: Path) -> dict[str, Scalar]:
    return {
        **default_run_config(),
        "backbone": str(backbone),
        "adapter.dim": 4,
        "batch-size": 8,
        "accumulation": 1,
        "beam": 1,
        "rounds": 2,
        "max-tokens": 32,
        "max-decode-tokens": 6,
        "keep.choose": False,
        "send.code": "none",
    }


@pytest.fixture(scope="session")
def toy_corpora(phrases: dict[str, list[str]]) -> tuple[dict[Direction, list[Pair]], dict[Direction, list[Pair]]]:
    """(train, dev) between German, French and Polish: 60 and 5 pairs a direction."""
    directions = [Direction(*both) for both in permutations(("de", "fr", "pl"), 2)]

    def part(first: int, last: int) -> dict[Direction, list[Pair]]:
        return {
            d: [Pair(*both) for both in zip(phrases[d.source][first:last], phrases[d.target][first:last], strict=True)]
            for d in directions
        }

    return part(0, 60), part(60, 65)


@pytest.fixture
def four_sites(least_run_config: dict[str, Scalar], tmp_path: Path) -> dict[str, Scalar]:
    """The least run config on a federation of four phrasebook sites."""
    (tmp_path / "four.toml").write_text(FOUR_SITES)
    return {**least_run_config, "federation": str(tmp_path / "four.toml"), "deadline.phase-s": 30.0}


@pytest.fixture(scope="session")
def run_once(least_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> "Callable[[Mapping[str, Scalar]], Run]":
    """Changes of `four_sites` -> that run on two nodes, made once, for tests that only read its folder and its messages."""
    from tests.in_process import run

    place, runs = tmp_path_factory.mktemp("once"), dict[str, Any]()
    (place / "four.toml").write_text(FOUR_SITES)
    config = {**short_run_config(least_backbone), "federation": str(place / "four.toml"), "deadline.phase-s": 30.0}

    def of(changes: Mapping[str, Scalar]) -> "Run":
        name = json.dumps(dict(changes), sort_keys=True)
        if name not in runs:
            runs[name] = run({**config, **changes}, place / str(len(runs)))
        return runs[name]

    return of


@pytest.fixture
def four_texts(four_sites: dict[str, Scalar], tiny_encoder: Path, tmp_path: Path) -> dict[str, Scalar]:
    """The same of four sites that each have text in one language, and pre-train the tiny encoder."""
    (tmp_path / "texts.toml").write_text(FOUR_TEXTS)
    masked = {"task": "masked-language", "backbone": str(tiny_encoder), "federation": str(tmp_path / "texts.toml")}
    return {**four_sites, **masked, "lora.targets": "query,value"}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, one for each process of tests; where there is none, what asks for it is skipped."""
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def finished_run(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of the four phrasebook sites by adapter-families, one round on the tiny backbone; no test changes it."""
    from tests.in_process import run  # Flower's app takes seconds to import

    folder = tmp_path_factory.mktemp("runs")
    (folder / "four.toml").write_text(FOUR_SITES)
    short = {
        "adapter.dim": 4,
        "batch-size": 8,
        "beam": 2,
        "rounds": 1,
        "max-tokens": 32,
        "max-decode-tokens": 16,
        "keep.choose": False,
        "send.code": "none",
    }
    config = {**default_run_config(), **short, "accumulation": 1, "backbone": str(tiny_backbone), "method": "adapter-families"}
    # So much that sites do not sound alike.
    told = {"federation": str(folder / "four.toml"), "deadline.phase-s": 60.0, "learning-rate": 0.1}
    return run({**config, **told}, folder / "four")[0].directory


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests last: to look for garbage among them takes a fifth of the time of collecting, and more in every test after it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test marked `fault(expected)`, which is one distinct cause, says so in its report: that is all that comes out of a worker."""
    report = yield
    mark = item.get_closest_marker("fault")
    if mark and report.when == "call":
        report.user_properties.append(("fault", mark.args[0]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the faults that were injected."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    faults = [(report.passed, dict(report.user_properties)) for report in reports if "fault" in dict(report.user_properties)]
    if faults:
        kinds = Counter(said["fault"] for _, said in faults)
        lost = sum(int(str(said.get("rounds_lost", 0))) for _, said in faults)
        each = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        passed = sum(passed for passed, _ in faults)
        terminalreporter.write_line(f"faults: {len(faults)} injected / {passed} as expected / {lost} lost (expected: {each})")


@pytest.fixture(scope="session")
def four_sites_run(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Method -> the folder of a run of four sites in one round by it, made when it is first asked for; no test changes it."""
    from tests.in_process import run  # Flower's app takes seconds to import

    place = tmp_path_factory.mktemp("runs")
    (place / "four.toml").write_text(FOUR_SITES)
    short = {
        "adapter.dim": 4,
        "batch-size": 8,
        "accumulation": 1,
        "beam": 1,
        "rounds": 1,
        "max-tokens": 32,
        "max-decode-tokens": 16,
    }
    where = {"backbone": str(tiny_backbone), "federation": str(place / "four.toml"), "deadline.phase-s": 30.0}

    def folder(method: str) -> Path:
        if not (place / method).is_dir():
            run(
                {**default_run_config(), "keep.choose": False, "send.code": "none", **short, **where, "method": method},
                place / method,
            )
        return place / method

    return folder
