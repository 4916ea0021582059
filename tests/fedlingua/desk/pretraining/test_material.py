"""An encoder of nothing: a toy's loss falls, equal seeds give equal bytes, and what is left loads as an encoder."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedlingua.backbones.codec import TextCodec
from fedlingua.backbones.load import load_backbone
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.desk.pretraining.build import build_text_tokenizer
from fedlingua.desk.pretraining.checkpoints import Progress
from fedlingua.desk.pretraining.loop import pretrain
from fedlingua.desk.pretraining.material import EVALUATION_KEY, masked_material
from fedlingua.desk.pretraining.settings import EncoderSettings, EncoderSize, Watching
from fedlingua.training.batches import pad
from fedlingua.training.masked_language import encode_text
from fedlingua.training.objective import corpus_nll

SIZE = EncoderSize(d_model=16, layers=1, heads=2, ffn_dim=32, vocab_size=150, max_positions=64)
TRAINING = EncoderSettings(steps=40, tokens_per_batch=300, learning_rate=1e-2, warmup_steps=5, max_tokens=48, threads=1, seed=1)
Text = dict[Direction, list[Pair]]


@pytest.fixture
def toy(phrases: dict[str, list[str]]) -> tuple[Text, Text]:
    """(train, dev) of German and French: 100 and 10 sentences each."""

    def part(first: int, last: int) -> Text:
        return {Direction(code, code): [Pair(one, one) for one in phrases[code][first:last]] for code in ("de", "fr")}

    return part(0, 100), part(100, 110)


def trained(toy: tuple[Text, Text], directory: Path, settings: EncoderSettings = TRAINING) -> list[Progress]:
    reports: list[Progress] = []
    pretrain(partial(masked_material, *toy, SIZE, settings), settings, directory, reports.append)
    return reports


def test_the_loss_of_masked_pieces_falls(toy: tuple[Text, Text], tmp_path: Path) -> None:
    reports = trained(toy, tmp_path / "toy")
    assert reports[-1].dev_loss < reports[0].dev_loss - 0.3
    assert reports[-1].train_loss < reports[0].train_loss - 0.3


def test_what_is_left_loads_and_is_what_the_last_dev_loss_was_of(toy: tuple[Text, Text], tmp_path: Path) -> None:
    last = trained(toy, tmp_path / "toy")[-1]
    backbone = load_backbone(tmp_path / "toy")
    assert isinstance(backbone.codec, TextCodec)
    assert (backbone.task, backbone.model.config.max_position_embeddings) == ("masked-language", 66)
    dev = [
        masked
        for pairs in toy[1].values()
        for one in encode_text([pair.source for pair in pairs], backbone.codec, 48, 0.15)
        for masked in one.fixed(EVALUATION_KEY)
    ]
    nll_sum, num_tokens = corpus_nll(backbone.model, [pad(dev, backbone.codec)])
    assert nll_sum / num_tokens == pytest.approx(last.dev_loss, rel=1e-5)


def test_the_seed_decides_the_bytes(toy: tuple[Text, Text], tmp_path: Path) -> None:
    short = replace(TRAINING, steps=5)
    for name, settings in (("a", short), ("b", short), ("c", replace(short, seed=2))):
        trained(toy, tmp_path / name, settings)
    files = {name: {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in "abc"}
    assert files["a"] == files["b"]
    assert files["a"]["model.safetensors"] != files["c"]["model.safetensors"]


def test_a_tokenizer_of_text_keeps_its_special_pieces_and_its_size(phrases: dict[str, list[str]], tmp_path: Path) -> None:
    codec = TextCodec(build_text_tokenizer(phrases["de"], 120, tmp_path / "t"))
    assert (codec.start_id, codec.pad_id, codec.end_id) == (0, 1, 2)
    assert codec.special_ids == {0, 1, 2, 3, codec.mask_id}
    assert codec.decode(codec.pieces(phrases["de"][:3])) == phrases["de"][:3]


def test_a_vocabulary_that_the_text_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="a vocabulary of 5000 cannot be made from this text"):
        build_text_tokenizer(["nur ein Satz"], 5000, tmp_path / "t")


def test_masks_are_gone_on_with_too(toy: tuple[Text, Text], tmp_path: Path) -> None:
    """They come from the generator that the text's order comes from, in the middle of an epoch."""

    def stop(progress: Progress) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    watching = Watching(checkpoint_minutes=1e-9)
    short = replace(TRAINING, steps=8)
    make = partial(masked_material, *toy, SIZE, short)
    trained(toy, tmp_path / "whole", short)
    with pytest.raises(KeyboardInterrupt):
        pretrain(make, short, tmp_path / "resumed", stop, watching)
    pretrain(make, short, tmp_path / "resumed", watching=watching)
    for file in (tmp_path / "whole").iterdir():
        assert (tmp_path / "resumed" / file.name).read_bytes() == file.read_bytes(), file.name
