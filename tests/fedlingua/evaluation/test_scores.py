"""Scores from sums are sacreBLEU's own, whole or added up from parts."""

from math import exp

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.scores import (
    ScoreSums,
    averages,
    below_base,
    bleu_score,
    bleu_tokenizer,
    check_tokenizers,
    chrf_score,
    score_sums,
    signatures,
)

try:
    import ipadic  # noqa: F401
    import MeCab  # noqa: F401
except ImportError:
    HAS_MECAB = False
else:
    HAS_MECAB = True
NEEDS_MECAB = pytest.mark.skipif(not HAS_MECAB, reason="the extra 'ja' is not installed")

TEXTS = {
    "13a": (
        "en",
        ["The cat sat on the mat.", "It's a fine day, isn't it?", "He bought 1,000 apples & pears.", ""],
        ["The cat is sitting on the mat.", "It is a fine day, isn't it?", "He bought 1,000 apples and pears.", "Nothing."],
    ),
    "zh": (
        "zh",
        ["我喜欢在公园里散步。", "今天的天气很好, 我们去买 iPhone 吧。", "他昨天没有来学校"],
        ["我喜欢在公园散步。", "今天天气很好, 我们去买 iPhone 吧。", "他昨天没有来上学。"],
    ),
    "char": (
        "th",
        ["ฉันชอบเดินเล่นในสวน", "วันนี้อากาศดีมาก", "เขาไม่ได้มาโรงเรียน"],
        ["ฉันชอบเดินในสวนสาธารณะ", "วันนี้อากาศดี", "เมื่อวานเขาไม่ได้มาโรงเรียน"],
    ),
    "ja-mecab": (
        "ja",
        ["猫は椅子の上にいる。", "今日はとても天気がいいです。", "彼は昨日学校に来なかった"],
        ["猫が椅子の上にいる。", "今日は天気がいいですね。", "彼は昨日、学校へ来ませんでした。"],
    ),
}
CASES = pytest.mark.parametrize(
    "tokenizer", [pytest.param(name, marks=NEEDS_MECAB) if name == "ja-mecab" else name for name in TEXTS]
)


@CASES
def test_bleu_from_sums_is_sacrebleus(tokenizer: str) -> None:
    target, hypotheses, references = TEXTS[tokenizer]
    wanted = BLEU(tokenize=tokenizer).corpus_score(hypotheses, [references]).score
    assert 5 < wanted < 95
    assert bleu_score(score_sums(hypotheses, references, target)) == pytest.approx(wanted, abs=1e-9)


@CASES
def test_chrf_from_sums_is_sacrebleus(tokenizer: str) -> None:
    target, hypotheses, references = TEXTS[tokenizer]
    wanted = CHRF().corpus_score(hypotheses, [references]).score
    assert 5 < wanted < 95
    assert chrf_score(score_sums(hypotheses, references, target)) == pytest.approx(wanted, abs=1e-9)


@CASES
def test_the_sums_of_two_halves_add_up_to_the_whole(tokenizer: str) -> None:
    target, hypotheses, references = TEXTS[tokenizer]
    halves = [score_sums(hypotheses[part], references[part], target) for part in (slice(0, 1), slice(1, None))]
    assert halves[0] + halves[1] == score_sums(hypotheses, references, target)


def test_sums_are_counted_by_hand() -> None:
    sums = score_sums(["a b c d"], ["a b c e f"], "en")
    # Matching: a, b, c; ab, bc; abc; none. All: 4, 3, 2, 1.
    assert sums.bleu == (4, 5, 3, 2, 1, 0, 4, 3, 2, 1)
    # Without spaces "abcd" and "abcef", orders 1 to 6: n-grams of the one, of the other, common ones.
    assert sums.chrf == (4, 5, 3, 3, 4, 2, 2, 3, 1, 1, 2, 0, 0, 1, 0, 0, 0, 0)
    assert sums.sentences == 1


def test_an_order_without_a_match_is_smoothed_by_halving() -> None:
    # Precisions 3/4, 2/3, 1/2 and, in place of 0/1, 1/2; brevity exp(1 - 5/4).
    wanted = 100 * exp(1 - 5 / 4) * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** (1 / 4)
    assert bleu_score(score_sums(["a b c d"], ["a b c e f"], "en")) == pytest.approx(wanted, abs=1e-9)


def test_nothing_translated_scores_nothing() -> None:
    sums = score_sums(["", ""], ["a b c d", "e f g h"], "en")
    assert (bleu_score(sums), chrf_score(sums)) == (0.0, 0.0)


def test_a_perfect_translation_scores_100() -> None:
    sums = score_sums(["a b c d e"], ["a b c d e"], "en")
    assert (bleu_score(sums), chrf_score(sums)) == (pytest.approx(100), pytest.approx(100))


@pytest.mark.parametrize(
    ("target", "tokenizer"),
    [
        ("zh", "zh"),
        pytest.param("ja", "ja-mecab", marks=NEEDS_MECAB),
        ("zh-Hant", "zh"),
        ("zh-CN", "zh"),
        ("zh-Latn", "13a"),
        ("yue", "char"),
        ("th", "char"),
        ("my", "char"),
        ("de", "13a"),
        ("ko", "13a"),
    ],
)
def test_the_target_decides_the_tokenisation(target: str, tokenizer: str) -> None:
    assert bleu_tokenizer(target) == tokenizer
    assert f"tok:{tokenizer}" in signatures(target)[0]


def test_chinese_is_counted_in_characters_and_other_words_whole() -> None:
    sums = score_sums(["我买 iPhone"], ["我买 iPhone 吧"], "zh")
    # 我 买 iPhone against 我 买 iPhone 吧: lengths 3 and 4, matching n-grams 3, 2, 1, 0 of 3, 2, 1, 0.
    assert sums.bleu == (3, 4, 3, 2, 1, 0, 3, 2, 1, 0)


@NEEDS_MECAB
def test_japanese_is_counted_in_words() -> None:
    sums = score_sums(["猫は椅子の上にいる。"], ["猫が椅子の上にいる。"], "ja")
    # 猫 は 椅子 の 上 に いる 。 against the same with が for は: 7 words match, 5 pairs, 4 triples, 3 fours.
    assert sums.bleu == (8, 8, 7, 5, 4, 3, 8, 7, 6, 5)


def test_a_tokenizer_whose_packages_are_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    check_tokenizers([Direction("ja", "en"), Direction("en", "zh")])
    with pytest.raises(ConfigError, match=r"BLEU into 'ja' .*'ja-mecab'.*pip install 'fedlingua\[ja\]'"):
        check_tokenizers([Direction("en", "zh"), Direction("en", "ja")])


def test_signatures_name_the_metric_the_references_and_the_version() -> None:
    bleu, chrf = signatures("de")
    assert bleu.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_macro_counts_sites_and_micro_counts_sentences() -> None:
    macro, micro = averages({"a": 10.0, "b": 40.0}, {"a": 300, "b": 100})
    assert macro == 25.0
    assert micro == (10 * 300 + 40 * 100) / 400 == 17.5


def test_sums_of_different_kinds_do_not_add() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ScoreSums(1, (1, 2), (1,)) + ScoreSums(1, (1,), (1,))


def test_sites_that_end_below_the_backbone_are_named_worst_first_and_of_many_a_dozen() -> None:
    sites = {f"site-{number}": {"bleu": 20.0 - number, "base_bleu": 20.0} for number in range(15)}
    (warning,) = below_base(sites)
    assert warning.startswith("sites that end below the backbone, in BLEU: site-14 (6.0, before 20.0), site-13 (")
    assert "site-3 (17.0, before 20.0), 2 more; a lower" in warning
    (warning,) = below_base(dict(list(sites.items())[:3]))
    assert "site-2 (18.0, before 20.0), site-1 (19.0, before 20.0); a lower" in warning
    assert not list(below_base({"site-0": sites["site-0"]}))
