"""A federation whose text is dealt out (IID): every site trains on all directions and is scored on its own."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.translating.models import delivered
from fedlingua.exchange import protocol
from fedlingua.runs.plan import planned_clusters
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from tests.federations import FOUR_SITES, SITES, SPLIT
from tests.in_process import checkpoint_bytes, rounds, run

DIRECTIONS = ["de-fr", "nl-es", "pl-sv", "cs-de"]


@pytest.fixture
def unmixed(four_sites: dict[str, Scalar]) -> dict[str, Scalar]:
    return {**four_sites, "method": "adapter-fed"}


@pytest.fixture
def config(unmixed: dict[str, Scalar], tmp_path: Path) -> dict[str, Scalar]:
    (tmp_path / "mixed.toml").write_text(FOUR_SITES.replace(SPLIT, f"{SPLIT}mixed = true\n"))
    return {**unmixed, "federation": str(tmp_path / "mixed.toml")}


def test_every_site_trains_on_its_hand_of_all_directions(config, tmp_path):
    folder, grid = run(config, tmp_path / "mixed")
    whole = read_sites(read_federation(tmp_path / "four.toml", tmp_path), frozenset())
    sites = folder.read("sites.json")
    assert [about["directions"] for about in sites.values()] == [DIRECTIONS] * 4
    assert [about["members"] for about in sites.values()] == [{site: d} for site, d in zip(SITES, DIRECTIONS, strict=True)]
    for split in ("train", "dev"):
        sizes = [sites[site][split] for site in SITES]
        assert sum(sizes) == sum(len(text.splits[split]) for text in whole.values())
        assert max(sizes) - min(sizes) <= 1
    read = [account["read"] for about in sites.values() for account in about["accounts"].values()]
    assert sum(read) == sum(text.account.read for text in whole.values())
    for line in rounds(folder)[1:]:
        assert [line["sites"][site]["steps"] for site in SITES] == [sites[site]["train"] // 8 for site in SITES]
    assert [line["round"] for line in rounds(folder)] == [0, 1, 2]
    assert not [reply for reply in grid.received if reply.has_error()]


def test_a_site_is_scored_on_its_own_direction_as_if_unmixed(config, unmixed, tmp_path):
    mixed, plain = run(config, tmp_path / "mixed")[0], run(unmixed, tmp_path / "plain")[0]
    scores, before = mixed.read("scores.json")["sites"], plain.read("scores.json")["sites"]
    assert list(scores) == SITES
    for site, direction in zip(SITES, DIRECTIONS, strict=True):
        for key in ("direction", "sentences", "base_bleu", "base_chrf", "signature"):
            assert scores[site][key] == before[site][key]
        assert scores[site]["sentences"] == mixed.read("sites.json")[site]["test"]
        own = mixed.directory / "sites" / site
        assert [file.name for file in own.glob("translations*.tsv")] == ["translations.tsv"]
        assert delivered(own)[1]["direction"] == scores[site]["direction"] == direction
    assert checkpoint_bytes(mixed) != checkpoint_bytes(plain)


def test_the_deal_does_not_depend_on_the_number_of_nodes(config, tmp_path):
    one, four = (run(config, tmp_path / f"on{nodes}", nodes, shuffle_seed=nodes)[0] for nodes in (1, 4))
    assert checkpoint_bytes(one) == checkpoint_bytes(four)
    assert one.read("sites.json")["bank"]["train"] == four.read("sites.json")["bank"]["train"]


def test_pooled_text_is_the_same_mixed_or_not(config, unmixed, tmp_path):
    pooled = {"method": "centralized-adapter", "rounds": 1}
    mixed, plain = run({**config, **pooled}, tmp_path / "mixed")[0], run({**unmixed, **pooled}, tmp_path / "plain")[0]
    assert mixed.read("scores.json")["sites"] == plain.read("scores.json")["sites"]


@pytest.mark.parametrize("method", ["adapter-families", "adapter-gradients", "adapter-random"])
def test_clusters_by_language_are_refused_before_anything_is_loaded(config, tmp_path, method):
    config = {**config, "method": method, "backbone": "never-trained"}
    with pytest.raises(ConfigError, match=f"method {method} clusters sites by their languages.*mixed = true"):
        planned_clusters(settings_from(config), read_federation(Path(config["federation"]), tmp_path))
    with pytest.raises(ConfigError, match=f"method {method} clusters"):
        run(config, tmp_path / "run")


def test_a_site_that_holds_its_own_direction_alone_is_refused(config, tmp_path):
    def tamper(request, reply):
        for key, record in reply.content.config_records.items() if not reply.has_error() else ():
            if key == f"{protocol.SITE_PREFIX}court":
                record["directions"] = ["nl-es"]
        return reply

    with pytest.raises(RunError, match=r"court: has the directions \['nl-es'\]; the federation file says \['de-fr', 'nl-es'"):
        run(config, tmp_path / "run", tamper=tamper)
