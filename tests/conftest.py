"""What many tests stand on: a backbone small enough to reason about, loaded anew for each test that changes it."""

from itertools import permutations
from pathlib import Path

import pytest

from fedlingua.backbones.build import ModelSize, build_model, build_tokenizer
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.config import Scalar, default_run_config
from fedlingua.corpora import phrasebook
from fedlingua.corpora.read import Pair
from fedlingua.languages import Direction
from fedlingua.training.batches import Example, encode_pairs


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


@pytest.fixture
def backbone(tiny_backbone: Path) -> Backbone:
    """The tiny backbone in memory of this test's own."""
    return load_backbone(tiny_backbone, "tiny")


@pytest.fixture
def examples(backbone: Backbone, phrases: dict[str, list[str]]) -> list[Example]:
    """21 German-French pairs, as ids: no multiple of 8."""
    pairs = [Pair(*both) for both in zip(phrases["de"][:21], phrases["fr"][:21], strict=True)]
    return encode_pairs(pairs, Direction("de", "fr"), backbone.codec, 32)


@pytest.fixture
def tiny_run_config(tiny_backbone: Path) -> dict[str, Scalar]:
    """A whole run config: the defaults, on the tiny backbone, as short as a run can be."""
    return {
        **default_run_config(),
        "backbone": str(tiny_backbone),
        "adapter-dim": 4,
        "batch-size": 8,
        "accumulation": 1,
        "beam": 1,
        "rounds": 2,
        "max-tokens": 32,
        "max-decode-tokens": 16,
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
