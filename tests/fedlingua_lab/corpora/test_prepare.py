"""The paper's splits and sizes: numbers that can be counted by hand, on files laid out as OPUS's."""

import random
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS
from fedlingua.desk.corpora.prepared import Prepared
from fedlingua_lab.corpora.opus import OpusCorpus
from fedlingua_lab.corpora.prepare import PAPER_CORPORA, paper_order, prepare

ZH_EN, DE_EN = Direction("zh", "en"), Direction("de", "en")


def ted(sizes: dict[Direction, Sizes | None]) -> OpusCorpus:
    return OpusCorpus("TED2020", sizes, {"zh": "zh_cn"})


HUNDREDTHS = ted({DE_EN: None})


def german(count: int) -> list[Pair]:
    return [Pair(f"Satz {number}", f"sentence {number}") for number in range(count)]


def write(folder: Path, direction: Direction, pairs: list[Pair]) -> None:
    codes = {"zh": "zh_cn"}
    source, target = (codes.get(code, code) for code in (direction.source, direction.target))
    pair = "-".join(sorted((source, target)))
    for code, side in ((source, 0), (target, 1)):
        (folder / f"TED2020.{pair}.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def prepared(folder: Path, corpus: OpusCorpus, no_leaks: bool = False, key: str = "k") -> Prepared:
    return prepare(corpus, folder, key, no_leaks, lambda line: None)


def account(result: Prepared, direction: Direction) -> dict[str, Any]:
    found: dict[str, Any] = result.account["directions"][str(direction)]
    return found


def test_the_lines_are_shuffled_and_cut_60_20_20_with_the_rest_for_test() -> None:
    order = paper_order(range(19), "k", DE_EN)
    assert [len(order[split]) for split in SPLITS] == [11, 3, 5]  # int(11.4), int(3.8), the rest
    shuffled = list(range(19))
    random.Random("k/de-en").shuffle(shuffled)
    assert [line for split in SPLITS for line in order[split]] == shuffled
    assert list(paper_order(range(19), "l", DE_EN)["train"]) != list(order["train"])


def test_a_hundredth_of_each_split_is_taken_from_its_front(tmp_path: Path) -> None:
    write(tmp_path, DE_EN, german(1000))
    result, order = prepared(tmp_path, HUNDREDTHS), paper_order(range(1000), "k", DE_EN)
    expected = {
        split: [german(1000)[line] for line in order[split][:count]] for split, count in zip(SPLITS, (6, 2, 2), strict=True)
    }
    assert result.splits[DE_EN] == expected
    told = account(result, DE_EN)
    assert (told["read"], told["kept"], told["dropped"], told["sizes"]) == (1000, 1000, {}, {"train": 6, "dev": 2, "test": 2})
    assert told["not_taken"] == 990


def test_lines_with_one_word_on_a_side_are_passed_over_and_the_next_taken(tmp_path: Path) -> None:
    """As the paper's code: the split is cut before such lines are dropped, and then filled up from behind them."""
    order = paper_order(range(20), "k", DE_EN)
    pairs = german(20)
    pairs[order["train"][0]], pairs[order["train"][2]], pairs[order["dev"][0]] = (
        Pair("ja", "yes it is"),
        Pair("", ""),
        Pair("a b", "c"),
    )
    write(tmp_path, DE_EN, pairs)
    result = prepared(tmp_path, ted({DE_EN: Sizes(3, 2, 1)}))
    taken = {"train": [1, 3, 4], "dev": [1, 2], "test": [0]}
    assert result.splits[DE_EN] == {split: [pairs[order[split][place]] for place in taken[split]] for split in SPLITS}
    told = account(result, DE_EN)
    assert (told["read"], told["kept"], told["dropped"], told["not_taken"]) == (20, 17, {"too-short": 2, "empty": 1}, 11)
    assert told["files"] == ["TED2020.de-en.de", "TED2020.de-en.en"]


def test_chinese_is_counted_in_characters_and_nothing_is_too_long_or_lopsided(tmp_path: Path) -> None:
    pairs = [Pair("一天", f"one day {number}") for number in range(7)]
    pairs += [Pair("天", "one day"), Pair("很长", "very long " * 300), Pair("一天", "one day 0")]
    write(tmp_path, ZH_EN, pairs)
    told = account(prepared(tmp_path, ted({ZH_EN: Sizes(1, 1, 1)})), ZH_EN)
    assert (told["kept"], told["dropped"]) == (9, {"too-short": 1})


def test_a_corpus_that_is_too_small_is_refused_with_all_its_numbers(tmp_path: Path) -> None:
    write(tmp_path, DE_EN, german(10))
    write(tmp_path, ZH_EN, [Pair("一天", "one day"), *[Pair("天", "day")] * 9])
    with pytest.raises(CorpusError) as caught:
        prepared(tmp_path, ted({DE_EN: Sizes(6, 3, 2), ZH_EN: None}))
    told = str(caught.value)
    assert "  de-en, dev: 2 of 3; read 10, usable 10" in told
    assert "de-en, train" not in told
    assert "  zh-en, train: a hundredth of its lines is none; read 10, usable 1" in told


def leaking(folder: Path) -> tuple[OpusCorpus, dict[Direction, list[Pair]]]:
    """10 lines each, cut 6/2/2 and all taken: one of de-en's dev pairs stands in its train, one of its test sentences in zh-en's train."""
    corpora = {
        DE_EN: [Pair(f"Satz {number}", f"sentence {number}") for number in range(10)],
        ZH_EN: [Pair(f"句子{number}", f"line {number}") for number in range(10)],
    }
    de, zh = paper_order(range(10), "k", DE_EN), paper_order(range(10), "k", ZH_EN)
    corpora[DE_EN][de["dev"][0]] = corpora[DE_EN][de["train"][0]]
    corpora[DE_EN][de["test"][1]] = Pair("andere Worte", corpora[ZH_EN][zh["train"][5]].target)
    for direction, pairs in corpora.items():
        write(folder, direction, pairs)
    return ted({DE_EN: Sizes(3, 1, 2), ZH_EN: Sizes(6, 2, 2)}), corpora


def test_the_leaks_of_the_papers_split_are_counted_at_the_same_site_and_at_any(tmp_path: Path) -> None:
    corpus, _ = leaking(tmp_path)
    result = prepared(tmp_path, corpus)
    assert account(result, DE_EN)["also_in_train"] == {
        "dev": {"same_site": 1, "any_site": 1},
        "test": {"same_site": 0, "any_site": 1},
    }
    assert account(result, ZH_EN)["also_in_train"] == {
        "dev": {"same_site": 0, "any_site": 0},
        "test": {"same_site": 0, "any_site": 0},
    }


def test_without_leaks_no_sentence_stands_in_two_splits_and_test_stays_as_it_was(tmp_path: Path) -> None:
    corpus, _ = leaking(tmp_path)
    small = ted({DE_EN: Sizes(3, 1, 2), ZH_EN: Sizes(5, 2, 2)})
    paper, clean = prepared(tmp_path, small), prepared(tmp_path, small, no_leaks=True)
    sides = {
        split: {
            (code, text)
            for d, parts in clean.splits.items()
            for pair in parts[split]
            for code, text in zip((d.source, d.target), pair, strict=True)
        }
        for split in SPLITS
    }
    assert not (sides["train"] & sides["dev"] | sides["train"] & sides["test"] | sides["dev"] & sides["test"])
    for direction in (DE_EN, ZH_EN):
        assert clean.splits[direction]["test"] == paper.splits[direction]["test"]
        assert account(clean, direction)["sizes"] == account(paper, direction)["sizes"]
    # The pair that stands in dev as well is passed over in train, and the next one is taken.
    assert clean.splits[DE_EN]["train"][:2] == paper.splits[DE_EN]["train"][1:3]
    assert clean.account["no_leaks"]
    assert account(clean, DE_EN)["also_in_train"] == account(paper, DE_EN)["also_in_train"]
    # zh-en has 6 lines for train, one of which stands in de-en's test: 6 cannot be had.
    with pytest.raises(CorpusError, match="zh-en, train: 5 of 6"):
        prepared(tmp_path, corpus, no_leaks=True)


def test_a_tab_inside_a_sentence_becomes_a_space_and_is_counted(tmp_path: Path) -> None:
    write(tmp_path, DE_EN, [Pair("ein\tSatz ", f"\tsentence {number}") for number in range(10)])
    result = prepared(tmp_path, ted({DE_EN: Sizes(1, 1, 1)}))
    assert {pair.source for pairs in result.splits[DE_EN].values() for pair in pairs} == {"ein Satz"}
    assert account(result, DE_EN)["tabs"] == 3


def test_another_key_gives_another_split_and_the_same_key_the_same(tmp_path: Path) -> None:
    write(tmp_path, DE_EN, german(1000))
    assert prepared(tmp_path, HUNDREDTHS).splits == prepared(tmp_path, HUNDREDTHS).splits
    assert prepared(tmp_path, HUNDREDTHS).splits != prepared(tmp_path, HUNDREDTHS, key="l").splits


def test_the_papers_two_corpora_are_its_tables() -> None:
    ted, europarl = PAPER_CORPORA["ted2020"], PAPER_CORPORA["europarl"]
    assert [size and size.train for size in ted.sizes.values()] == [10_000, 5000, 10_000, 2000, 2000, 2000, 10_000, 2000]
    assert ted.sizes[ZH_EN] == Sizes(10_000, 3000, 3000)
    assert len(europarl.sizes) == 12
    assert set(europarl.sizes.values()) == {None}
