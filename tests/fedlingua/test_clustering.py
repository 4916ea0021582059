"""Who is averaged with whom, on the paper's two federations and by hand."""

import pytest

from fedlingua.clustering import Clusters, Relatives, alone, by_families, cluster_of, no_clusters
from fedlingua.errors import ConfigError
from fedlingua.languages import Direction, parse_direction

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
