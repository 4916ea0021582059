"""Files that a user names: where a relative path begins, TOML that is not there or is none, and files that others must not read."""

import os
import re
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, held, read_toml, replace_text, resolve, sha256
from fedlingua.desk.paths import check_file_to_write, check_folder_to_write, check_new_folder


def test_a_relative_path_starts_at_the_app_and_an_absolute_one_stays(tmp_path: Path) -> None:
    assert resolve("experiments/x.toml") == APP_DIR / "experiments/x.toml"
    assert resolve(str(tmp_path)) == tmp_path
    assert resolve("~/x.toml") == Path.home() / "x.toml"
    assert (APP_DIR / "pyproject.toml").is_file()


def test_a_missing_file_is_named_with_the_nearest_beside_it(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text("")
    with pytest.raises(ConfigError) as caught:
        read_toml(tmp_path / "demos.toml")
    assert f"{tmp_path / 'demos.toml'}: there is no such file; did you mean 'demo.toml'?" in str(caught.value)


def test_a_missing_folder_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_toml(tmp_path / "nowhere" / "demo.toml")


@pytest.mark.parametrize(("content", "told"), [(b"rounds = 3\nseed 7\n", "line 2"), (b'name = "\xff"', "utf-8")])
def test_what_is_not_toml_is_named_with_its_place(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert f"{path} is not TOML" in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("encoding", "told"),
    [("utf-8-sig", ""), ("utf-16", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32", "UTF-32"), ("utf-32-le", "UTF-32")],
)
def test_a_mark_of_utf_8_before_toml_is_read_over_and_wider_encodings_are_told(tmp_path: Path, encoding: str, told: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes('name = "Zürich"\r\nrounds = 3\r\n'.encode(encoding))
    if not told:
        assert read_toml(path) == {"name": "Zürich", "rounds": 3}
        return
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert str(caught.value) == f"{path}: this is {told}; convert it to UTF-8, as with iconv -f {told} -t UTF-8"


def test_every_toml_file_of_a_user_is_read_by_the_one_function() -> None:
    code = [*(APP_DIR / "src/fedlingua").rglob("*.py"), *(APP_DIR / "src/fedlingua_lab").rglob("*.py")]
    parses = {file.name for file in code if re.search(r"tomllib\.load", file.read_text(encoding="utf-8"))}
    assert parses == {"files.py", "experiment.py"}  # the second one parses the value of --set


def test_places_that_cannot_be_written_are_refused_with_what_stands_there(tmp_path: Path) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("x")
    full.mkdir()
    (full / "x").write_text("x")
    for check, place, told in (
        (check_new_folder, full, "--to {}: already holds files"),
        (check_new_folder, file, "--to {}: is a file; give a folder"),
        (check_folder_to_write, file / "in" / "it", f"--to {{}}: {file} is a file, not a folder"),
        (check_file_to_write, full, "--to {}: is a folder; give a file"),
        (check_file_to_write, file / "x", f"--to {{}}: {file} is a file"),
    ):
        with pytest.raises(ConfigError) as caught:
            check(place, "--to")
        assert told.format(place) in str(caught.value)


def test_places_that_can_be_written_are_let_be(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "new" / "newer"):
        check_new_folder(place, "--to")
    check_file_to_write(tmp_path / "new" / "file", "--to")
    assert not (tmp_path / "new").exists()


def test_a_files_checksum_is_that_of_its_bytes(tmp_path: Path) -> None:
    """The two vectors of FIPS 180-2, and more bytes than one read takes."""
    for content, expected in (
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ):
        (tmp_path / "file").write_bytes(content)
        assert sha256(tmp_path / "file") == expected


def test_a_private_file_is_never_readable_by_others_whatever_lay_there_before(tmp_path: Path) -> None:
    file = tmp_path / "site.key"
    aside = tmp_path / f".{file.name}.{os.getpid()}"  # as a stranger, or a process that was killed, may have left it
    aside.write_text("old")
    aside.chmod(0o666)
    with aside.open() as reader:
        replace_text(file, "secret", 0o600)
        assert reader.read() == "old"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("secret", 0o600)
    assert not aside.exists()


def test_who_waits_too_long_for_a_lock_is_told(tmp_path: Path) -> None:
    with held(tmp_path / "new" / "lock"), pytest.raises(TimeoutError), held(tmp_path / "new" / "lock", seconds=0.1):
        pytest.fail("two hold it")
    with held(tmp_path / "new" / "lock", seconds=0.1):
        pass
