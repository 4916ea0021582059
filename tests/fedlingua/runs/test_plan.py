"""What is known of a run's clusters before any site is asked."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.corpora.sites import read_federation
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.runs.plan import alone_words, numbers_by_gradients, numbers_of_clusters, planned_clusters
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config

SITES = ["zh-en", "th-en", "ar-en", "he-en", "fi-en", "et-en"]
SITE = '[[site]]\nname = "{0}"\ndirection = "{0}"\ntsv = "x.tsv"\n'


def federation(tmp_path: Path, more: str = ""):
    path = tmp_path / "f.toml"
    path.write_text(more + "".join(SITE.format(site) for site in SITES))
    return read_federation(path, tmp_path)


def settings(**changes):
    return replace(settings_from(default_run_config()), cluster_by="family", **changes)


def test_random_clusters_of_many_to_english_sites_keep_one_decoder(tmp_path):
    """Liu et al. 2023, §3.1: in many-to-English all share the decoder."""
    found = planned_clusters(settings(method="adapter-random"), federation(tmp_path))
    assert [len(members) for members in found["encoder"].values()] == [2, 2, 2]
    assert list(found["decoder"].values()) == [tuple(SITES)]


def test_a_number_that_is_asked_for_divides_only_the_parts_that_are_divided(tmp_path):
    numbers = numbers_of_clusters(settings(method="adapter-random", num_clusters=2), federation(tmp_path))
    assert numbers == {"encoder": 2, "decoder": 1}


def test_gradients_are_not_known_before_they_are_asked_for(tmp_path):
    assert planned_clusters(settings(method="adapter-gradients"), federation(tmp_path)) is None


@pytest.mark.parametrize("method", ["adapter-random", "adapter-gradients"])
def test_more_clusters_than_sites_are_refused_before_anything_starts(tmp_path, method):
    with pytest.raises(ConfigError, match=r"cluster.number = 7, but there are 6 sites"):
        planned_clusters(settings(method=method, num_clusters=7), federation(tmp_path))


def test_given_clusters_come_from_the_federation_file(tmp_path):
    more = '[clusters.encoder]\none = ["zh-en", "fi-en", "et-en"]\ntwo = ["th-en", "ar-en", "he-en"]\n'
    found = planned_clusters(replace(settings(), cluster_by="given"), federation(tmp_path, more))
    assert found["encoder"]["one"] == ("zh-en", "fi-en", "et-en")
    with pytest.raises(ConfigError, match=r"has no \[clusters.encoder\]"):
        planned_clusters(replace(settings(), cluster_by="given"), federation(tmp_path))


def test_clusters_of_one_site_are_joined_unless_the_run_says_otherwise(tmp_path):
    of_groups = replace(settings(), cluster_by="group")
    assert sorted(map(len, planned_clusters(of_groups, federation(tmp_path))["encoder"].values())) == [2, 2, 2]
    before = planned_clusters(replace(of_groups, cluster_least=1), federation(tmp_path))
    assert sorted(map(len, before["encoder"].values())) == [1, 1, 2, 2]
    assert replace(of_groups, cluster_least=1).hash() != of_groups.hash()


def test_a_site_that_shares_a_part_with_nobody_is_told_what_that_costs_and_what_helps(tmp_path):
    sent = TensorSet("x", (TensorSpec("e", (100, 5), "encoder", 0), TensorSpec("d", (7,), "decoder", 0)))
    by_group = replace(settings(), cluster_by="group", cluster_least=1)
    words = alone_words(by_group, planned_clusters(by_group, federation(tmp_path)), sent)
    assert list(words) == ["zh-en", "th-en"]
    assert words["zh-en"].startswith("site zh-en shares its encoder with no other site, so 2.00 kB of each update")
    assert "cluster.least = 2" in words["zh-en"]
    local = settings(method="adapter-local")
    assert alone_words(local, planned_clusters(local, federation(tmp_path)), sent) == {}


def test_a_centralized_method_has_one_pooled_site(tmp_path):
    assert planned_clusters(settings(method="centralized-adapter"), federation(tmp_path))["encoder"] == {"pooled": ("pooled",)}


def test_local_training_leaves_everybody_alone_and_plain_federation_nobody(tmp_path):
    assert len(planned_clusters(settings(method="adapter-local"), federation(tmp_path))["encoder"]) == 6
    assert len(planned_clusters(settings(method="adapter-fed"), federation(tmp_path))["encoder"]) == 1


def test_gradients_divide_a_part_as_its_families_do_or_as_the_other_where_it_is_whole_and_as_asked(tmp_path):
    """One to many: the encoder is one group, the decoder three."""
    path = tmp_path / "one.toml"
    path.write_text("".join(SITE.format(site) for site in ("de-fr", "de-pl", "de-nl", "de-it")))
    one_to_many = read_federation(path, tmp_path)
    by_group = replace(settings(method="adapter-gradients"), cluster_by="group", cluster_least=1)
    assert numbers_of_clusters(by_group, one_to_many) == {"encoder": 1, "decoder": 3}
    assert numbers_by_gradients(by_group, one_to_many) == {"encoder": 3, "decoder": 3}
    assert numbers_by_gradients(replace(by_group, num_clusters=2), one_to_many) == {"encoder": 2, "decoder": 2}
    assert numbers_by_gradients(replace(by_group, num_clusters=-1), one_to_many) == {"encoder": -1, "decoder": -1}
    path.write_text("".join(SITE.format(site) for site in ("de-fr", "pl-it", "nl-es", "fr-nl")))
    assert numbers_by_gradients(by_group, read_federation(path, tmp_path)) == {"encoder": 3, "decoder": 2}
