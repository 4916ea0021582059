"""Who is averaged with whom, on the paper's two federations and by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlingua.backbones.parts import Part
from fedlingua.clustering import clusters as clustering
from fedlingua.clustering.clusters import (
    Clusters,
    Relatives,
    alone,
    at_random,
    by_families,
    cluster_of,
    given_clusters,
    no_clusters,
    only,
)
from fedlingua.clustering.clusters import named as clusters_named
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.translating.models import cluster_for

TED = ["zh-en", "th-en", "ar-en", "he-en", "fi-en", "et-en", "ru-en", "sl-en"]
TED_FAMILIES = {
    "zh": "Sino-Tibetan",
    "th": "Sino-Tibetan",
    "ar": "Afro-Asiatic",
    "he": "Afro-Asiatic",
    "fi": "Uralic",
    "et": "Uralic",
    "ru": "Indo-European",
    "sl": "Indo-European",
    "en": "Indo-European",
}
EUROPARL = ["de-fr", "nl-pl", "en-lt", "fr-nl", "it-sl", "es-lv", "pl-en", "sl-es", "sl-lt", "lt-de", "lv-it", "lv-pl"]


def named(directions: list[str]) -> dict[str, list[Direction]]:
    """Sites that are named after their one direction."""
    return {text: [parse_direction(text)] for text in directions}


def members(clusters: Clusters, part: str) -> set[frozenset[str]]:
    return {frozenset(sites) for sites in clusters[part].values()}  # type: ignore[index]


def test_ted_by_the_papers_families_has_four_encoder_clusters_and_one_decoder_cluster() -> None:
    clusters = by_families(named(TED), Relatives(TED_FAMILIES, "group"))
    assert clusters["encoder"] == {
        "Sino-Tibetan": ("zh-en", "th-en"),
        "Afro-Asiatic": ("ar-en", "he-en"),
        "Uralic": ("fi-en", "et-en"),
        "Indo-European": ("ru-en", "sl-en"),
    }
    assert clusters["decoder"] == {"Indo-European": tuple(TED)}


def test_ted_by_the_built_in_families_is_clustered_as_in_the_paper() -> None:
    assert by_families(named(TED), Relatives({}, "family")) == by_families(named(TED), Relatives(TED_FAMILIES, "group"))


def test_ted_by_the_built_in_groups_parts_chinese_and_thai() -> None:
    assert members(by_families(named(TED), Relatives({}, "group")), "encoder") == {
        frozenset({"zh-en"}),
        frozenset({"th-en"}),
        frozenset({"ar-en", "he-en"}),
        frozenset({"fi-en", "et-en"}),
        frozenset({"ru-en", "sl-en"}),
    }


def test_europarl_by_groups_has_the_papers_clusters() -> None:
    clusters = by_families(named(EUROPARL), Relatives({}, "group"))
    assert clusters["encoder"] == {
        "Germanic": ("de-fr", "nl-pl", "en-lt"),
        "Romance": ("fr-nl", "it-sl", "es-lv"),
        "Slavic": ("pl-en", "sl-es", "sl-lt"),
        "Baltic": ("lt-de", "lv-it", "lv-pl"),
    }
    assert clusters["decoder"] == {
        "Romance": ("de-fr", "sl-es", "lv-it"),
        "Slavic": ("nl-pl", "it-sl", "lv-pl"),
        "Baltic": ("en-lt", "es-lv", "sl-lt"),
        "Germanic": ("fr-nl", "pl-en", "lt-de"),
    }


def test_europarl_by_families_is_one_cluster() -> None:
    clusters = by_families(named(EUROPARL), Relatives({}, "family"))
    assert clusters["encoder"] == clusters["decoder"] == {"Indo-European": tuple(EUROPARL)}


@pytest.mark.parametrize("by", ["group", "family"])
@pytest.mark.parametrize("sites", [TED, EUROPARL])
def test_every_site_stands_in_exactly_one_cluster_of_each_part(sites: list[str], by: str) -> None:
    for clusters in (by_families(named(sites), Relatives({}, by)), no_clusters(sites), alone(sites)):
        assert set(clusters) == {"encoder", "decoder", "shared"}
        for names in clusters.values():
            assert sorted(site for cluster in names.values() for site in cluster) == sorted(sites)


def test_a_small_cluster_joins_the_smallest_of_its_family_else_of_all() -> None:
    clusters = by_families(named(["fi-en", "de-en", "fr-en", "nl-en", "es-en", "it-en", "pl-en"]), Relatives({}, "group"), 2)
    # Polish joins German and Dutch, two sites; Finnish, the only one of its family, then the first of what is smallest.
    assert clusters["encoder"] == {
        "Germanic-Slavic": ("de-en", "nl-en", "pl-en"),
        "Finnic-Romance": ("fi-en", "fr-en", "es-en", "it-en"),
    }
    assert clusters["decoder"] == {"Germanic": ("fi-en", "de-en", "fr-en", "nl-en", "es-en", "it-en", "pl-en")}


def test_small_clusters_of_one_family_join_each_other_before_a_large_one() -> None:
    clusters = by_families(named(["de-en", "fr-en", "es-en", "it-en", "pl-en"]), Relatives({}, "group"), 2)
    assert clusters["encoder"] == {"Romance": ("fr-en", "es-en", "it-en"), "Germanic-Slavic": ("de-en", "pl-en")}


def test_three_sites_without_relatives_are_one_cluster_and_one_site_stays_alone() -> None:
    assert by_families(named(["de-en", "fi-en", "zh-en"]), Relatives({}, "group"), 2)["encoder"] == {
        "all": ("de-en", "fi-en", "zh-en")
    }
    assert by_families(named(["de-en"]), Relatives({}, "group"), 2)["encoder"] == {"Germanic": ("de-en",)}


def test_families_of_the_federation_file_are_nobodys_relatives() -> None:
    own = Relatives({"de": "Here", "fr": "There"}, "group")
    assert by_families(named(["de-en", "nl-en", "fr-en", "es-en"]), own, 2)["encoder"] == {
        "Germanic-Romance": ("nl-en", "es-en"),
        "Here-There": ("de-en", "fr-en"),
    }


def test_what_is_shared_is_averaged_over_all() -> None:
    assert by_families(named(EUROPARL), Relatives({}, "group"))["shared"] == {"all": tuple(EUROPARL)}


def test_plain_federation_is_one_cluster_and_local_training_is_one_for_each_site() -> None:
    assert all(clusters == {"all": ("a", "b")} for clusters in no_clusters(["a", "b"]).values())
    assert all(clusters == {"a": ("a",), "b": ("b",)} for clusters in alone(["a", "b"]).values())


def test_a_site_may_have_several_directions_inside_one_cluster() -> None:
    site = {"museum": [parse_direction("de-fr"), parse_direction("nl-it")]}
    clusters = by_families(site, Relatives({}, "group"))
    assert clusters["encoder"] == {"Germanic": ("museum",)}
    assert clusters["decoder"] == {"Romance": ("museum",)}


@pytest.mark.parametrize(
    ("directions", "part", "names"),
    [("de-fr fr-it", "encoder", "Germanic, Romance"), ("de-fr nl-pl", "decoder", "Romance, Slavic")],
)
def test_a_site_between_two_clusters_is_refused(directions: str, part: str, names: str) -> None:
    site = {"museum": [parse_direction(text) for text in directions.split()]}
    with pytest.raises(ConfigError, match=f"site museum: .* 2 {part} clusters \\({names}\\).*adapter-fed"):
        by_families(site, Relatives({}, "group"))


def test_families_of_the_federation_file_go_before_the_built_in_ones() -> None:
    assert Relatives({}, "group").of("de") == "Germanic"
    assert Relatives({}, "family").of("de") == "Indo-European"
    assert Relatives({"de": "Alpine"}, "group").of("de") == Relatives({"de": "Alpine"}, "family").of("de") == "Alpine"
    assert by_families(named(["de-fr", "it-de"]), Relatives({"de": "Alpine", "it": "Alpine"}, "group"))["encoder"] == {
        "Alpine": ("de-fr", "it-de")
    }


def test_a_sites_cluster_is_found_in_each_part() -> None:
    clusters = by_families(named(EUROPARL), Relatives({}, "group"))
    assert cluster_of(clusters, "encoder", "sl-lt") == "Slavic"
    assert cluster_of(clusters, "decoder", "sl-lt") == "Baltic"
    assert cluster_of(clusters, "shared", "sl-lt") == "all"


SITES = [f"site-{number}" for number in range(12)]


def test_random_clusters_are_of_equal_size_and_hold_every_site_once() -> None:
    clusters = at_random(SITES, {"encoder": 4, "decoder": 5}, seed=2022)
    assert sorted(map(len, clusters["encoder"].values())) == [3, 3, 3, 3]
    assert sorted(map(len, clusters["decoder"].values())) == [2, 2, 2, 3, 3]
    for part in ("encoder", "decoder"):
        assert sorted(site for sites in clusters[part].values() for site in sites) == sorted(SITES)  # type: ignore[index]


def test_random_clusters_differ_by_seed_and_between_encoder_and_decoder_and_come_back_for_the_same_seed() -> None:
    numbers: dict[Part, int] = {"encoder": 4, "decoder": 4}
    one = at_random(SITES, numbers, seed=2022)
    assert one == at_random(SITES, numbers, seed=2022)
    assert members(one, "encoder") != members(at_random(SITES, numbers, seed=2023), "encoder")
    assert members(one, "encoder") != members(one, "decoder")


def test_more_clusters_than_sites_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"cluster.number = 3, but there are 2 sites"):
        at_random(["a", "b"], {"encoder": 3, "decoder": 1}, seed=1)


def test_clusters_are_numbered_by_their_first_site_whatever_the_labels() -> None:
    wanted = {"x-1": ("a", "c"), "x-2": ("b",)}
    assert clusters_named("x", [7, 0, 7], ["a", "b", "c"]) == wanted == clusters_named("x", [0, 1, 0], ["a", "b", "c"])


def test_given_clusters_keep_their_names_and_a_part_that_is_not_given_is_everybodys() -> None:
    clusters = given_clusters({"encoder": {"west": ["c", "a"], "east": ["b"]}}, ["a", "b", "c"], "f.toml")
    assert clusters == {
        "encoder": {"west": ("a", "c"), "east": ("b",)},
        "decoder": {"all": ("a", "b", "c")},
        "shared": {"all": ("a", "b", "c")},
    }


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"encoder": {"west": ["a"], "east": ["b"]}}, "c is in no cluster"),
        ({"encoder": {"west": ["a", "b"], "east": ["b", "c"]}}, "b is in more than one cluster"),
        ({"decoder": {"west": ["a", "b", "c", "bb"]}}, "names 'bb', but there is no such site; did you mean 'b'"),
        ({"encoder": {"west": []}}, "wanted a list of sites"),
        ({"encoder": {"a/b": ["a", "b", "c"]}}, "'a/b' is no name"),
        ({}, "is empty"),
        ({"shared": {"west": ["a", "b", "c"]}}, r"wanted tables \[clusters.encoder\] and \[clusters.decoder\]"),
    ],
)
def test_given_clusters_that_do_not_hold_every_site_once_are_refused(raw: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        given_clusters(raw, ["a", "b", "c"], "f.toml")


@pytest.mark.parametrize(("parts", "whole"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_clusters_of_one_part_alone_leave_the_other_whole(parts: str, whole: str) -> None:
    clusters = by_families(named(EUROPARL), Relatives({}, "group"))
    halved = only(clusters, parts)
    assert halved[parts] == clusters[parts]  # type: ignore[index]
    assert halved[whole] == {"all": tuple(EUROPARL)}  # type: ignore[index]
    assert only(clusters, "both") == clusters


def test_a_direction_that_no_site_holds_takes_the_nearest_cluster_of_each_part() -> None:
    directions = named(EUROPARL)
    relatives = Relatives({}, "group")
    clusters = by_families(directions, relatives)
    # Nobody translates from Portuguese or into Swedish.
    assert cluster_for(Direction("pt", "sv"), "encoder", clusters, directions, relatives) == "Romance"
    assert cluster_for(Direction("pt", "sv"), "decoder", clusters, directions, relatives) == "Germanic"
    with pytest.raises(ConfigError, match="no site has source zh or another of Sinitic"):
        cluster_for(Direction("zh", "sv"), "encoder", clusters, directions, relatives)


def test_a_direction_that_a_site_holds_takes_that_sites_clusters_before_its_relatives() -> None:
    sites = ["de-fr", "de-it", "nl-it"]
    clusters = {**no_clusters(sites), **dict.fromkeys(("encoder", "decoder"), clustering.named("random", [0, 1, 1], sites))}
    directions, relatives = named(["de-fr", "de-it", "nl-it"]), Relatives({}, "group")
    assert cluster_for(Direction("de", "it"), "encoder", clusters, directions, relatives) == "random-2"
    # By the source alone the first site that has it decides.
    assert cluster_for(Direction("de", "pl"), "encoder", clusters, directions, relatives) == "random-1"
    assert cluster_for(Direction("nl", "fr"), "decoder", clusters, directions, relatives) == "random-1"


def test_committed_federations_have_the_clusters_that_they_had() -> None:
    experiments = Path(__file__).parents[3] / "experiments"
    had = json.loads(Path(__file__).with_name("experiment_clusters.json").read_text(encoding="utf-8"))
    assert len(had) > 20
    for file, clusters in had.items():
        federation = read_federation(experiments / file, Path("nowhere"))
        directions = {site.name: [site.direction] for site in federation.sites}
        for by, parts in clusters.items():
            found = by_families(directions, federation.relatives(by))
            assert {part: {name: list(sites) for name, sites in found[part].items()} for part in parts} == parts, (file, by)


def test_the_two_scripts_of_chinese_are_two_languages_that_the_file_can_part() -> None:
    sites = named(["zh-Hant--en", "zh-Hans--en"])
    assert by_families(sites, Relatives({}, "group"))["encoder"] == {"Sinitic": tuple(sites)}
    apart = by_families(sites, Relatives({"zh-Hant": "Traditional", "zh-Hans": "Simplified"}, "group"))
    assert apart["encoder"] == {"Traditional": ("zh-Hant--en",), "Simplified": ("zh-Hans--en",)}
    assert Relatives({"zh": "Chinese"}, "group").of("zh-Hant-TW") == "Chinese"


def test_a_language_of_no_known_family_is_refused_only_where_families_count() -> None:
    sites = named(["eo-en", "de-fr"])
    with pytest.raises(ConfigError, match=r"language 'eo' \(Esperanto\): .*\[families\] Name = \[\"eo\"\]"):
        by_families(sites, Relatives({}, "group"))
    assert by_families(sites, Relatives({"eo": "Romance"}, "group"))["encoder"]["Romance"] == ("eo-en",)
    assert no_clusters(list(sites))["encoder"] == {"all": tuple(sites)}


def test_a_direction_of_no_known_family_is_answered_by_who_holds_its_language_alone() -> None:
    sites = named(["eo-en", "de-fr"])
    relatives, clusters = Relatives({"eo": "Planned"}, "group"), by_families(sites, Relatives({"eo": "Planned"}, "group"))
    assert cluster_for(parse_direction("eo-fr"), "encoder", clusters, sites, relatives) == "Planned"
    assert cluster_for(parse_direction("eo-fr"), "encoder", clusters, sites, Relatives({}, "group")) == "Planned"
    with pytest.raises(ConfigError, match="no site has source ay or a related one"):
        cluster_for(parse_direction("ay-fr"), "encoder", clusters, sites, Relatives({}, "group"))
