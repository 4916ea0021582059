"""The demo backbone: trained once, cached by what made it, and good enough to be worth tuning."""

import itertools

from fedlingua.backbones.load import load_backbone
from fedlingua.corpora import phrasebook
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.scores import bleu_score, score_sums
from fedlingua.languages import Direction
from fedlingua.pretraining import demo
from fedlingua.pretraining.demo import base_register, demo_backbone
from fedlingua.pretraining.directories import backbone_directory


def test_the_demo_translates_unseen_base_sentences_at_bleu_95():
    """Macro BLEU over every fourth direction, 40 sentences each, none of which the backbone was trained on."""
    train, _ = base_register()
    seen = {side for pairs in train.values() for pair in pairs for side in pair}
    fresh = phrasebook.base_corpus(demo.SENTENCES, demo.GRAMMAR_SEED + 1)
    backbone = load_backbone(demo_backbone())
    scores = []
    for source, target in list(itertools.permutations(phrasebook.LANGUAGES, 2))[::4]:
        pairs = [pair for pair in zip(fresh[source], fresh[target], strict=True) if not seen & set(pair)][:40]
        assert len(pairs) == 40
        sources, references = zip(*pairs, strict=True)
        hypotheses = translate(backbone.model, backbone.codec, sources, Direction(source, target), 4, 64, 64)
        scores.append(bleu_score(score_sums(hypotheses, references, target)))
    assert sum(scores) / len(scores) >= 95


def test_the_cached_demo_is_used_again():
    first = demo_backbone()
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert backbone_directory("demo") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written


def test_another_grammar_is_another_demo(monkeypatch):
    before = demo.demo_hash()
    monkeypatch.setattr(demo, "GRAMMAR_SEED", demo.GRAMMAR_SEED + 1)
    assert demo.demo_hash() != before
