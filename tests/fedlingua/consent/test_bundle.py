"""Bundles: a name by their bytes, and a site's list of those that it runs."""

import hashlib
from pathlib import Path

import pytest
from flwr.supercore.fab import Fab

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.consent.bundle import approvals, approved, bundle_hash
from fedlingua.desk.deployment.gate import KEPT, check_approved
from fedlingua.desk.deployment.site_setup import approve

ONE, OTHER = "1" * 64, "ab" * 32


def test_a_bundle_is_known_by_the_hash_that_flower_gives_it() -> None:
    assert bundle_hash(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert bundle_hash(b"abc").startswith("ba7816bf8f01cfea")
    content = b"a bundle"
    assert Fab(bundle_hash(content), content, {}).hash_str == bundle_hash(content)


def test_no_list_approves_nothing(tmp_path: Path) -> None:
    assert approved(tmp_path / "approved.txt") == set()


def test_a_hash_is_approved_once_and_the_lines_before_it_stay(tmp_path: Path) -> None:
    file = tmp_path / "approved.txt"
    file.write_text(f"# mine\n\n{ONE}  # read by K. on Monday\n")
    assert approve(file, OTHER)
    assert not approve(file, OTHER)
    assert approved(file) == {ONE, OTHER}
    assert file.read_text().startswith(f"# mine\n\n{ONE}  # read by K. on Monday\n{OTHER}  # 2")
    assert [path.name for path in tmp_path.iterdir()] == ["approved.txt"]


def test_every_hash_has_its_note(tmp_path: Path) -> None:
    file = tmp_path / "approved.txt"
    file.write_text(f"# mine\n#{'c' * 64} # gone\n{ONE}#read by K. # twice\n{OTHER}\n")
    assert approvals(file) == {ONE: "read by K. # twice", OTHER: ""}
    assert approve(file, "d" * 64, "run: demo.toml")
    assert approvals(file)["d" * 64].endswith(" run: demo.toml")


def test_a_last_line_without_its_end_is_not_joined_to_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "approved.txt"
    file.write_text(ONE)
    assert approve(file, OTHER)
    assert approved(file) == {ONE, OTHER}


def test_a_hash_that_is_commented_out_is_not_approved(tmp_path: Path) -> None:
    (tmp_path / "approved.txt").write_text(f"#{ONE}\n  {OTHER} # note\n")
    assert approved(tmp_path / "approved.txt") == {OTHER}


@pytest.mark.parametrize("bundle", ["", "abc", ONE[:-1], ONE + "1", "A" * 64, ONE + "\n", "*"])
def test_what_is_no_hash_is_not_approved(tmp_path: Path, bundle: str) -> None:
    with pytest.raises(ConfigError, match="is not the hash of a bundle"):
        approve(tmp_path / "approved.txt", bundle)
    assert not (tmp_path / "approved.txt").exists()


def test_a_line_that_is_no_hash_spoils_the_list_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "approved.txt").write_text(f"{ONE}\n*\n")
    with pytest.raises(ConfigError, match=r"approved\.txt, line 2: '\*' is not the hash"):
        approved(tmp_path / "approved.txt")


def test_an_approved_bundle_passes_and_leaves_nothing(tmp_path: Path) -> None:
    approve(tmp_path / "approved.txt", bundle_hash(b"good"))
    check_approved(b"good", tmp_path / "approved.txt", tmp_path / "bundles")
    assert not (tmp_path / "bundles").exists()


def test_another_bundle_is_refused_and_kept_as_it_came(tmp_path: Path) -> None:
    approve(tmp_path / "approved.txt", bundle_hash(b"good"))
    with pytest.raises(DeploymentError, match=f"has not approved the bundle {bundle_hash(b'bad')}.*site approve"):
        check_approved(b"bad", tmp_path / "approved.txt", tmp_path / "state" / "bundles")
    (kept,) = (tmp_path / "state" / "bundles").iterdir()
    assert (kept.name, kept.read_bytes()) == (f"{bundle_hash(b'bad')}.fab", b"bad")


def test_only_the_newest_refused_bundles_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        with pytest.raises(DeploymentError):
            check_approved(f"bundle {number}".encode(), tmp_path / "approved.txt", tmp_path / "bundles")
    kept = {file.read_bytes() for file in (tmp_path / "bundles").iterdir()}
    assert kept == {f"bundle {number}".encode() for number in range(3, KEPT + 3)}


def test_a_list_from_an_editor_that_marks_utf_8_is_read(tmp_path: Path) -> None:
    (tmp_path / "approved.txt").write_text(f"{'a' * 64}\n", encoding="utf-8-sig")
    assert approved(tmp_path / "approved.txt") == {"a" * 64}


def test_a_list_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "approved.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"approved.txt is not UTF-8 text .*; wanted hashes of bundles"):
        approve(tmp_path / "approved.txt", "a" * 64)


def test_a_refused_bundle_that_cannot_be_stored_is_refused_without_naming_a_place(tmp_path: Path) -> None:
    (tmp_path / "bundles").write_text("a file where the folder should be")
    with pytest.raises(DeploymentError) as refused:
        check_approved(b"bundle", tmp_path / "approved.txt", tmp_path / "bundles")
    assert "cannot store it" in str(refused.value)
    assert str(tmp_path) not in str(refused.value)
