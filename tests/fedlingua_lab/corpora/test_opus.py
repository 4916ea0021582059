"""OPUS's downloads are found by all the names that they go by, and what is not there is told at once."""

import gzip
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.read import Pair
from fedlingua_lab.corpora.opus import OpusCorpus, find_all

ZH_EN, SL_ES = Direction("zh", "en"), Direction("sl", "es")
TED = OpusCorpus("TED2020", {ZH_EN: None}, {"zh": "zh_cn"})
EUROPARL = OpusCorpus("Europarl", {SL_ES: None})
TEXT = {"en": "one day\ntwo days\n", "zh_cn": "一天\n两天\n", "es": "un día\ndos días\n", "sl": "en dan\ndva dneva\n"}


def write_zip(file: Path, *names: str, prefix: str = "") -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "about\n")
        for name in names:
            archive.writestr(prefix + name, TEXT[name.rpartition(".")[2]])


def found(corpus: OpusCorpus, folder: Path) -> list[Pair]:
    (files,) = find_all(corpus, folder).values()
    return list(files.read())


@pytest.mark.parametrize("name", ["TED2020_en-zh_cn.txt.zip", "en-zh_cn.txt.zip"])
@pytest.mark.parametrize("prefix", ["", "moses/"])
def test_a_direction_is_read_from_a_zip_named_in_alphabetical_order(tmp_path: Path, name: str, prefix: str) -> None:
    write_zip(tmp_path / name, "TED2020.en-zh_cn.en", "TED2020.en-zh_cn.zh_cn", prefix=prefix)
    assert found(TED, tmp_path) == [Pair("一天", "one day"), Pair("两天", "two days")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("below", [False, True], ids=["in the folder", "in a folder of the pair"])
def test_either_direction_is_read_from_unpacked_files(tmp_path: Path, suffix: str, below: bool) -> None:
    folder = tmp_path / "es-sl" if below else tmp_path
    folder.mkdir(exist_ok=True)
    for code in ("es", "sl"):
        content = TEXT[code].encode()
        (folder / f"Europarl.es-sl.{code}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    assert found(EUROPARL, tmp_path) == [Pair("en dan", "un día"), Pair("dva dneva", "dos días")]
    assert found(OpusCorpus("Europarl", {Direction("es", "sl"): None}), tmp_path)[0] == Pair("un día", "en dan")


def test_only_a_line_feed_ends_a_line_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "es-sl.txt.zip", "w") as archive:
        archive.writestr("Europarl.es-sl.es", "un\u2028día\r\ndos\x85días\n")
        archive.writestr("Europarl.es-sl.sl", "en dan\ndva dneva\n")
    assert found(EUROPARL, tmp_path) == [Pair("en dan", "un\u2028día"), Pair("dva dneva", "dos\x85días")]


def test_everything_that_is_missing_is_told_at_once_with_the_names_that_would_do(tmp_path: Path) -> None:
    write_zip(tmp_path / "en-zh_cn.txt.zip", "TED2020.en-zh_cn.en", "TED2020.en-zh_cn.zh_cn")
    (tmp_path / "TED2020.en-sl.en").write_text("alone\n")
    with pytest.raises(CorpusError) as caught:
        find_all(replace(TED, sizes=dict.fromkeys(map(parse_direction, ("zh-en", "ar-en", "sl-en")))), tmp_path)
    told = str(caught.value)
    assert "lacks 2 of 3 pairs of TED2020" in told
    assert "  ar-en: TED2020_ar-en.txt.zip or ar-en.txt.zip, or TED2020.ar-en.ar and TED2020.ar-en.en unpacked (also .gz)" in told
    assert "  sl-en: TED2020_en-sl.txt.zip or en-sl.txt.zip, or TED2020.en-sl.sl and TED2020.en-sl.en unpacked (also .gz)" in told
    assert "zh-en:" not in told


def test_a_zip_of_another_corpus_is_not_taken(tmp_path: Path) -> None:
    """Both corpora have an es-sl.txt.zip."""
    write_zip(tmp_path / "es-sl.txt.zip", "TED2020.es-sl.es", "TED2020.es-sl.sl")
    with pytest.raises(CorpusError, match="lacks 1 of 1 pairs of Europarl"):
        find_all(EUROPARL, tmp_path)


def test_a_zip_that_was_cut_off_is_named(tmp_path: Path) -> None:
    write_zip(tmp_path / "whole.zip", "Europarl.es-sl.es", "Europarl.es-sl.sl")
    (tmp_path / "es-sl.txt.zip").write_bytes((tmp_path / "whole.zip").read_bytes()[:-40])
    with pytest.raises(CorpusError, match=r"es-sl\.txt\.zip is no zip file .*download it again"):
        find_all(EUROPARL, tmp_path)


def test_a_zip_whose_content_is_damaged_is_named(tmp_path: Path) -> None:
    write_zip(tmp_path / "es-sl.txt.zip", "Europarl.es-sl.es", "Europarl.es-sl.sl")
    content = bytearray((tmp_path / "es-sl.txt.zip").read_bytes())
    content[content.index(b"Europarl.es-sl.es") + 20] ^= 0xFF
    (tmp_path / "es-sl.txt.zip").write_bytes(content)
    with pytest.raises(CorpusError, match=r"es-sl\.txt\.zip/Europarl\.es-sl\.es, after line \d: cannot be read .*whole zip file"):
        found(EUROPARL, tmp_path)
