"""The key that sites share: written for its owner alone, read back, and refused in words that never quote it."""

import stat
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.desk.cli.site import make_overlap_key


def test_a_new_key_is_read_back_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "overlap.key"
    key = make_overlap_key(file)
    assert len(key) == 32
    assert read_overlap_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert make_overlap_key(tmp_path / "another") != key


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    key = make_overlap_key(tmp_path / "key")
    with pytest.raises(ConfigError, match="already exists"):
        make_overlap_key(tmp_path / "key")
    assert read_overlap_key(tmp_path / "key") == key


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "got 0 lines besides notes"),
        (b"# only a note\n", "got 0 lines"),
        (b"ab" * 32 + b"\n" + b"cd" * 32 + b"\n", "got 2 lines"),
        (b"ab" * 31, "got 62 characters that are no such key"),
        (b"correct horse battery staple", "got 28 characters that are no such key"),
        (b"xy" * 32, "got 64 characters that are no such key"),
        ("schlüssel".encode("latin-1"), "cannot be read"),
        (None, "there is no such file"),
    ],
)
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path: Path, content: bytes | None, told: str) -> None:
    file = tmp_path / "overlap.key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as refused:
        read_overlap_key(file)
    assert "horse" not in str(refused.value)
    assert "abab" not in str(refused.value)


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_overlap_key(tmp_path)
