"""A folder is there whole or not at all, and a damaged one is told."""

import os
from pathlib import Path

import pytest

from fedlingua.common.errors import RunError
from fedlingua.common.folders import CHECKSUMS, check_folder, replace_folder, write_folder


def two_files(aside: Path) -> None:
    (aside / "a").write_text("1")
    (aside / "b").write_text("2")


def refusal(folder: Path) -> str:
    with pytest.raises(RunError) as caught:
        check_folder(folder, "a", "use another")
    return str(caught.value)


def test_what_is_written_is_good_and_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    for _ in range(2):
        write_folder(tmp_path / "x", two_files)
        check_folder(tmp_path / "x", "a", "use another")
    assert {file.name for file in (tmp_path / "x").iterdir()} == {"a", "b", CHECKSUMS}
    assert [folder.name for folder in tmp_path.iterdir()] == ["x"]


def test_a_writing_that_fails_leaves_the_older_folder_as_it_was(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", two_files)

    def fails(aside: Path) -> None:
        (aside / "a").write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_folder(tmp_path / "x", fails)
    check_folder(tmp_path / "x", "a", "use another")
    assert (tmp_path / "x" / "a").read_text() == "1"


def test_every_damage_is_told_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    write_folder(folder, two_files)
    (folder / "b").write_text("3")
    assert refusal(folder) == f"{folder / 'b'} has been changed (checksum differs); use another"
    (folder / "b").unlink()
    assert "listed and present files differ in b" in refusal(folder)
    (folder / CHECKSUMS).unlink()
    assert "no readable checksums" in refusal(folder)


def test_a_folder_without_the_file_that_it_must_have_is_none(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", lambda aside: None)
    assert "differ in a" in refusal(tmp_path / "x")


def test_what_is_called_like_it_beside_it_stays(tmp_path: Path) -> None:
    for name in ("model", "model.old", "model.writing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text(name)
    replace_folder(tmp_path / "model", two_files)
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == [
        "model.old/mine",
        "model.writing/mine",
        "model/a",
        "model/b",
    ]


def test_a_new_one_that_cannot_take_its_place_gives_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "x", two_files)
    real = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(source).suffix == ".writing":
            raise OSError("no space")
        real(source, target)

    monkeypatch.setattr("fedlingua.common.folders.os.replace", full)
    with pytest.raises(OSError, match="no space"):
        write_folder(tmp_path / "x", two_files)
    check_folder(tmp_path / "x", "a", "use another")
    assert [folder.name for folder in tmp_path.iterdir()] == ["x"]
