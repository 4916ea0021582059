"""Which sites' text a centralized run trains on; all of it is scored."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.corpora.simulated import check_pool, pooled_texts
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.texts import read_sites

SITES = (("berlin", "de", "true"), ("wien", "de", "false"), ("madrid", "es", "false"))


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    entries = "".join(
        f'[[site]]\nname = "{name}"\nlanguage = "{language}"\npublic = {public}\nphrasebook = "hospital"\nsentences = 60\nseed = {seed}\n'
        for seed, (name, language, public) in enumerate(SITES)
    )
    (tmp_path / "federation.toml").write_text(entries)
    return read_federation(tmp_path / "federation.toml", tmp_path)


@pytest.mark.parametrize(
    ("pools", "trains"),
    [("all", ["berlin", "wien", "madrid"]), ("public", ["berlin"]), ("wien", ["wien"]), ("madrid", ["madrid"])],
)
def test_only_what_is_pooled_trains_and_everything_is_scored(federation: Federation, pools: str, trains: list[str]) -> None:
    texts = read_sites(federation, set())
    pooled = pooled_texts(texts, federation, pools)
    assert [name for name, text in pooled.items() if text.splits["train"] and text.splits["dev"]] == trains
    for name, text in pooled.items():
        assert text.splits["test"] == texts[name].splits["test"]
        assert name in trains or not (text.splits["train"] or text.splits["dev"])


def test_a_pool_of_nobody_is_refused(federation: Federation) -> None:
    check_pool(federation, "public")
    with pytest.raises(ConfigError, match=r"no site is 'de', .* wanted the name of a site \(here: berlin, wien, madrid\)"):
        check_pool(federation, "de")
