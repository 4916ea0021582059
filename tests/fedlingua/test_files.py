"""Files that a user names: where a relative path begins, and TOML that is not there or is none."""

from pathlib import Path

import pytest

from fedlingua.errors import ConfigError
from fedlingua.files import APP_DIR, read_toml, resolve


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
