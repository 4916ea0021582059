"""The demo backbone: shipped, and good enough to be worth tuning."""

import itertools
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedlingua_demo
from fedlingua.backbones.codec import Codec
from fedlingua.backbones.directories import BUILT_IN, backbone_directory
from fedlingua.backbones.load import load_backbone
from fedlingua.common.languages import Direction
from fedlingua.desk.pretraining import demo
from fedlingua.desk.pretraining.demo import base_register
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.scores import bleu_score, score_sums
from fedlingua.training.objective import examples_nll
from fedlingua.training.translation import encode_pairs
from fedlingua_demo import phrasebook


def test_the_demo_translates_unseen_base_sentences_at_bleu_95() -> None:
    """Macro BLEU over every eighth direction, 20 sentences each, none of which the backbone was trained on."""
    train, _ = base_register()
    seen = {side for pairs in train.values() for pair in pairs for side in pair}
    fresh = phrasebook.base_corpus(demo.SENTENCES, demo.GRAMMAR_SEED + 1)
    backbone = load_backbone(backbone_directory("demo"))
    scores = []
    for source, target in list(itertools.permutations(phrasebook.LANGUAGES, 2))[::8]:
        pairs = [pair for pair in zip(fresh[source], fresh[target], strict=True) if not seen & set(pair)][:20]
        assert len(pairs) == 20
        sources, references = zip(*pairs, strict=True)
        hypotheses = translate(backbone.model, backbone.codec, sources, Direction(source, target), 4, 64, 64)
        scores.append(bleu_score(score_sums(hypotheses, references, target)))
    assert sum(scores) / len(scores) >= 95


def test_what_ships_is_as_its_recipe_says_and_fits_beside_the_code() -> None:
    """Weights in half precision, at most 2.5 MB in all, of the size that the recipe names."""
    files = list(fedlingua_demo.BACKBONE.iterdir())
    assert sum(file.stat().st_size for file in files) <= 2_500_000
    stored = load_file(fedlingua_demo.BACKBONE / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    config = load_backbone(fedlingua_demo.BACKBONE).model.config
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    assert layers == {"encoder": demo.SIZE.encoder_layers, "decoder": demo.SIZE.decoder_layers} == BUILT_IN["demo"].layers
    assert (config.d_model, config.encoder_ffn_dim) == (demo.SIZE.d_model, demo.SIZE.ffn_dim)


@pytest.fixture(scope="module")
def codec() -> Codec:
    return load_backbone(fedlingua_demo.BACKBONE).codec


def test_every_character_of_every_register_is_a_piece_in_both_cases(codec: Codec) -> None:
    corpora = [phrasebook.base_corpus(2000, 5), *(phrasebook.register_corpus(name, 300, 5) for name in phrasebook.REGISTERS)]
    text = "".join(line for corpus in corpora for lines in corpus.values() for line in lines)
    assert codec.tokenizer.get_vocab().keys() >= {*text, *text.lower(), *text.upper()} - {" "}


def test_any_text_comes_back_from_the_pieces_of_the_demo_as_it_was(codec: Codec) -> None:
    """What has no piece is spelt in bytes, which are put together again; broken bytes, as a model may write them, are no error."""
    rng = random.Random(5)
    planes = [range(0x21, 0x7F), range(0xA1, 0x2000), range(0x2010, 0x2580), range(0x2582, 0xD800), range(0x10000, 0x110000)]
    drawn = ["".join(chr(rng.choice(rng.choice(planes))) for _ in range(12)) for _ in range(300)]
    texts = [text for text in ["Ærø, Żółć, 北京, 😀", "e\u0301 ﬁ ½ \u00a0x", "a\tb <0x41>", *drawn] if text == text.strip()]
    ids = codec.pieces(texts)
    assert codec.decode(ids) == texts
    assert codec.tokenizer.unk_token_id not in {number for row in ids for number in row}
    assert codec.decode([codec.tokenizer.convert_tokens_to_ids(["▁a", "<0xE5>", "b"])]) == ["a\ufffdb"]


@pytest.mark.slow
def test_the_recipe_makes_a_demo_as_good_as_the_one_that_ships(tmp_path: Path) -> None:
    """Dev loss of what is trained now, against that of what ships."""
    demo.train_demo(tmp_path / "demo")
    _, dev = base_register()
    losses = []
    for directory in (tmp_path / "demo", fedlingua_demo.BACKBONE):
        made = load_backbone(directory)
        sums = [
            examples_nll(made.model, made.codec, encode_pairs(pairs, direction, made.codec, 64), "fp32")
            for direction, pairs in dev.items()
        ]
        losses.append(sum(nll for nll, _ in sums) / sum(tokens for _, tokens in sums))
    assert losses[0] == pytest.approx(losses[1], rel=0.1)
