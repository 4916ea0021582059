"""Checksums of files."""

from pathlib import Path

from fedlingua.common.hashing import sha256


def test_a_files_checksum_is_that_of_its_bytes(tmp_path: Path) -> None:
    """The two vectors of FIPS 180-2, and more bytes than one read takes."""
    for content, expected in (
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ):
        (tmp_path / "file").write_bytes(content)
        assert sha256(tmp_path / "file") == expected
