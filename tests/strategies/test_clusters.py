"""Clusters that have to be asked for, and methods that pool all sites: whole runs in one process."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedlingua import protocol
from fedlingua.errors import RunError
from fedlingua.exchange.records import from_record, to_record
from tests.federations import FOUR_SITES, SITES
from tests.in_process import failing, rounds, run


@pytest.fixture
def config(four_sites):
    return four_sites


def gradients(config, **more):
    return {**config, "method": "adapter-gradients", "num-clusters": 2, "rounds": 1, **more}


def signatures_of(grid):
    """What every site answered: the arrays of its signature reply."""
    replies = [reply for reply in grid.received if reply.metadata.message_type == protocol.SIGNATURE]
    return [from_record(reply.content.array_records[protocol.ARRAYS])[protocol.SIGNATURE_ARRAY] for reply in replies]


def test_gradients_make_the_same_clusters_of_encoder_and_decoder_and_leave_one_gradient_a_site(config, tmp_path):
    folder, grid = run(gradients(config), tmp_path / "run")
    clusters, told = folder.read("clusters.json"), folder.read("signatures.json")
    assert clusters["encoder"] == clusters["decoder"]
    assert sorted(site for members in clusters["encoder"].values() for site in members) == sorted(SITES)
    assert len(clusters["encoder"]) == told["num_clusters"] == 2
    # One adapter of the tiny backbone: d_model x dim, twice.
    assert [len(signature) for signature in signatures_of(grid)] == [told["dimensions"]] * 4 == [256] * 4
    assert told["form"] == "raw"
    assert told["epsilon"] is None
    assert "raw gradient" in (folder.directory / "progress.jsonl").read_text()


def test_a_private_signature_has_at_most_64_numbers_and_states_what_it_cost(config, tmp_path):
    private = {"signature-form": "private", "signature-dim": 16, "signature-noise": 4.0}
    folder, grid = run(gradients(config, **private), tmp_path / "run")
    told = folder.read("signatures.json")
    assert {len(signature) for signature in signatures_of(grid)} == {16}
    assert told["epsilon"] == pytest.approx(1.993, abs=0.01)  # of a noise multiplier of 2
    assert told["delta"] == 1e-5
    assert "raw gradient" not in (folder.directory / "progress.jsonl").read_text()


def test_gradient_clusters_are_the_same_in_any_order_of_replies_and_on_any_number_of_nodes(config, tmp_path):
    one, _ = run(gradients(config), tmp_path / "one", num_nodes=1)
    other, _ = run(gradients(config), tmp_path / "other", num_nodes=4, shuffle_seed=7)
    assert one.read("clusters.json") == other.read("clusters.json")
    assert one.read("signatures.json")["distances"] == other.read("signatures.json")["distances"]


def test_a_site_without_a_signature_ends_the_run_by_name(config, tmp_path):
    with pytest.raises(RunError, match="court: the disk is full"):
        run(gradients(config), tmp_path / "run", tamper=failing("court", protocol.SIGNATURE, 0))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(3, np.float32), "wanted 256 finite"),
        (np.full(256, np.nan, np.float32), "wanted 256 finite"),
        (np.zeros(256, np.float32), "points nowhere"),
        (np.ones(256, np.float64), "float64"),
        (None, "arrays"),
    ],
)
@pytest.mark.fault("stopped")
def test_a_bad_signature_is_refused_by_name(config, tmp_path, array, reason):
    def tamper(request, reply):
        if request.metadata.message_type == protocol.SIGNATURE and request.content[protocol.TASK]["site"] == "court":
            reply.content[protocol.ARRAYS] = (
                MetricRecord({"a": 1}) if array is None else to_record({protocol.SIGNATURE_ARRAY: array})
            )
        return reply

    with pytest.raises(RunError, match=f"court: bad reply: .*{reason}"):
        run(gradients(config), tmp_path / "run", tamper=tamper)


def test_random_clusters_are_as_many_as_the_families_and_change_with_the_seed(config, tmp_path):
    found = []
    for seed in (2022, 2023):
        folder, _ = run({**config, "method": "adapter-random", "seed": seed, "rounds": 1}, tmp_path / str(seed))
        found.append(folder.read("clusters.json"))
    # Sources: two Germanic, two Slavic; targets: two Romance, two Germanic.
    assert [len(found[0][part]) for part in ("encoder", "decoder")] == [2, 2]
    assert all(len(members) == 2 for part in ("encoder", "decoder") for members in found[0][part].values())
    assert found[0] != found[1]


@pytest.mark.parametrize("method", ["centralized-adapter", "centralized-model"])
def test_a_centralized_method_trains_on_all_text_at_once_and_scores_every_site_by_its_name(config, tmp_path, method):
    folder, grid = run({**config, "method": method, "rounds": 2}, tmp_path / "run")
    assert list(folder.read("scores.json")["sites"]) == SITES
    assert list(folder.read("sites.json")) == ["pooled"]
    assert list(folder.read("sites.json")["pooled"]["members"]) == SITES
    trained = [line["sites"]["pooled"]["steps"] for line in rounds(folder) if line["round"]]
    alone, _ = run({**config, "method": "adapter-local", "rounds": 1}, tmp_path / "alone")
    by_site = {site: entry["steps"] for site, entry in rounds(alone)[1]["sites"].items()}
    assert all(steps > max(by_site.values()) for steps in trained)
    assert not any(message.content.array_records.get(protocol.ARRAYS) for message in grid.sent)
    assert folder.read("scores.json")["exchanged_parameters"] == 0


def test_a_centralized_run_is_scored_on_the_same_sentences_as_a_federated_one(config, tmp_path):
    pooled, _ = run({**config, "method": "centralized-adapter", "rounds": 1}, tmp_path / "pooled")
    fed, _ = run({**config, "method": "adapter-fed", "rounds": 1}, tmp_path / "fed")
    pooled_sites, fed_sites = (folder.read("scores.json")["sites"] for folder in (pooled, fed))
    for site in SITES:
        assert pooled_sites[site]["sentences"] == fed_sites[site]["sentences"]
        assert pooled_sites[site]["base_bleu"] == fed_sites[site]["base_bleu"]


def test_another_run_id_draws_no_new_noise(config, tmp_path):
    """Noise drawn anew for each asking could be averaged away; what decides an answer is not what the server calls the run."""
    _, grid = run(gradients(config, **{"signature-form": "private"}), tmp_path / "run")
    (asked,) = [m for m in grid.sent if m.metadata.message_type == protocol.SIGNATURE and m.content["task"]["site"] == "court"]
    again = grid._run(_like(asked, {**asked.content[protocol.TASK], "run": "another"}))
    first = next(s for s, reply in zip(signatures_of(grid), _signature_replies(grid), strict=True) if _site(reply) == "court")
    assert from_record(again.content.array_records[protocol.ARRAYS])[protocol.SIGNATURE_ARRAY].tobytes() == first.tobytes()


def test_a_site_answers_no_question_that_its_method_does_not_ask(config, tmp_path):
    _, grid = run(gradients(config), tmp_path / "gradients")
    (asked,) = [m for m in grid.sent if m.metadata.message_type == protocol.SIGNATURE and m.content["task"]["site"] == "court"]
    _, other = run({**config, "method": "adapter-families", "rounds": 1}, tmp_path / "families")
    reply = other._run(_like(asked, dict(asked.content[protocol.TASK])))
    assert reply.has_error()
    assert "method adapter-families has none" in reply.error.reason


def _signature_replies(grid):
    return [reply for reply in grid.received if reply.metadata.message_type == protocol.SIGNATURE]


def _site(reply):
    return reply.content.config_records[protocol.TASK]["site"]


def _like(message, task):
    content = RecordDict({protocol.TASK: ConfigRecord(task), protocol.RULES: message.content[protocol.RULES]})
    return Message(content, dst_node_id=message.metadata.dst_node_id, message_type=protocol.SIGNATURE, group_id="0", ttl=60.0)


def test_gradient_clusters_do_not_change_when_language_labels_are_shuffled(config, tmp_path):
    """Only the signatures decide: the same ones under other directions make the same clusters."""
    angles = {"hospital": 0.0, "court": 1.5, "school": 0.1, "bank": 1.6}

    def fixed(request, reply):
        if request.metadata.message_type == protocol.SIGNATURE:
            angle = angles[request.content[protocol.TASK]["site"]]
            array = np.zeros(256, np.float32)
            array[:2] = np.cos(angle), np.sin(angle)
            reply.content[protocol.ARRAYS] = to_record({protocol.SIGNATURE_ARRAY: array})
        return reply

    directions = ["de-fr", "nl-es", "pl-sv", "cs-de"]
    found = []
    for number, shuffled in enumerate((directions, [directions[n] for n in (2, 0, 3, 1)])):
        text = FOUR_SITES
        for place, label in zip(directions, shuffled, strict=True):
            text = text.replace(f'direction = "{place}"', f'direction = "NEW{label}"')
        file = tmp_path / f"{number}.toml"
        file.write_text(text.replace("NEW", ""))
        folder, _ = run(gradients(config, federation=str(file)), tmp_path / f"run-{number}", tamper=fixed)
        found.append(folder.read("clusters.json"))
    assert found[0] == found[1]
    assert list(found[0]["encoder"].values()) == [["hospital", "school"], ["court", "bank"]]
