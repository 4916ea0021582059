"""Metrics from counts of sentences are sacreBLEU's own, whole or added up from parts."""

import numpy as np
import pytest
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from fedlingua.common.errors import ConfigError
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Translated
from fedlingua.settings.metrics import OF_TEXT, metric_names

ENGLISH = Translated(
    ["Die Katze saß auf der Matte.", "Er kaufte 1000 Äpfel und Birnen.", "Leer.", "Ein schöner Tag, nicht wahr?"],
    ["The cat sat on the mat.", "He bought 1,000 apples & pears.", "", "It's a fine day, isn't it?"],
    ["The cat is sitting on the mat.", "He bought 1,000 apples and pears.", "Empty.", "It is a fine day, isn't it?"],
    "en",
)
CHINESE = Translated(["a", "b"], ["我喜欢在公园里散步。", "他昨天没有来学校"], ["我喜欢在公园散步。", "他昨天没有来上学。"], "zh")
THAI = Translated(["a", "b"], ["ฉันชอบเดินเล่นในสวน", "วันนี้อากาศดีมาก"], ["ฉันชอบเดินในสวนสาธารณะ", "วันนี้อากาศดี"], "th")
OWN: dict[tuple[str, str], SacreMetric] = {
    ("bleu", "en"): BLEU(),
    ("bleu", "zh"): BLEU(tokenize="zh"),
    ("bleu", "th"): BLEU(tokenize="char"),
    **{("chrf", target): CHRF() for target in ("en", "zh", "th")},
    **{("chrf++", target): CHRF(word_order=2) for target in ("en", "zh", "th")},
    ("ter", "en"): TER(),
    ("ter", "zh"): TER(normalized=True, asian_support=True),
    ("ter", "th"): TER(),
}


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, THAI], ids=["en", "zh", "th"])
@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "ter"])
def test_a_corpus_has_sacrebleus_score_and_signature(name: str, text: Translated) -> None:
    own, metric = OWN[name, text.target], TEXT_METRICS[name]
    wanted = own.corpus_score(list(text.hypotheses), [list(text.references)]).score
    assert metric.of(metric.count(text)) == pytest.approx(wanted, abs=1e-9)
    assert 0 < wanted < 100 or (name, text.target) == ("ter", "th")  # which sees no words there
    assert metric.signature(text.target) == own.get_signature().format()


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_counts_are_a_row_a_sentence_and_add_up_over_parts(name: str) -> None:
    metric = TEXT_METRICS[name]
    counts = metric.count(ENGLISH)
    assert counts.shape == (4, metric.width)
    alone = [
        Translated([source], [hypothesis], [reference], "en")
        for source, hypothesis, reference in zip(ENGLISH.sources, ENGLISH.hypotheses, ENGLISH.references, strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate([metric.count(one) for one in alone]), counts)


def test_the_length_ratio_is_of_tokens() -> None:
    """7 tokens of 8; and the tokens of all sentences, not a mean of ratios."""
    one = Translated(["x"], ["The cat sat on the mat."], ["The cat is sitting on the mat."], "en")
    assert TEXT_METRICS["length-ratio"].of(TEXT_METRICS["length-ratio"].count(one)) == 7 / 8
    two = Translated(["x", "y"], ["The cat sat on the mat.", ""], ["The cat is sitting on the mat.", "a b"], "en")
    assert TEXT_METRICS["length-ratio"].of(TEXT_METRICS["length-ratio"].count(two)) == 7 / 10


def test_off_target_is_the_share_that_is_surely_in_another_language() -> None:
    hypotheses = ["Dies ist ganz sicher ein deutscher Satz über das Wetter.", "This is certainly an English sentence.", "Oh."]
    text = Translated(["x"] * 3, hypotheses, ["y"] * 3, "en")
    assert TEXT_METRICS["off-target"].of(TEXT_METRICS["off-target"].count(text)) == pytest.approx(1 / 3)


def test_metrics_go_by_the_names_that_are_documented() -> None:
    assert {*TEXT_METRICS, "comet"} == set(OF_TEXT)
    assert metric_names(" ter,bleu,,ter ") == ["ter", "bleu"]
    with pytest.raises(ConfigError, match=r"there is no metric 'blue'; did you mean 'bleu'\?; there are bleu, chrf"):
        metric_names("ter,blue")
    with pytest.raises(ConfigError, match="no metric is given"):
        metric_names(" , ")
