"""Clusters that have to be asked for, and methods that pool all sites: whole runs in one process."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.records import from_record, to_record
from fedlingua.privacy.accounting import signature_epsilon
from tests.federations import FOUR_SITES, SITES
from tests.in_process import failing, rounds, run


@pytest.fixture
def config(four_sites):
    return four_sites


def gradients(config, **more):
    return {**config, "method": "adapter-gradients", "cluster.number": 2, "rounds": 1, **more}


ALONE = {"signature.adapter": "decoder.-1.encoder_attn"}
"""One signature for both parts."""


def signatures_of(grid):
    """What every site answered: the arrays of its signature reply, by name."""
    replies = [reply for reply in grid.received if reply.metadata.message_type == protocol.SIGNATURE]
    return [from_record(reply.content.array_records[protocol.ARRAYS]) for reply in replies]


def fixed_at(angles):
    """Sites that answer with these directions in the plane, site -> name of a signature -> angle."""

    def tamper(request, reply):
        if request.metadata.message_type == protocol.SIGNATURE:
            arrays = {name: np.zeros(256, np.float32) for name in angles[request.content[protocol.TASK]["site"]]}
            for name, angle in angles[request.content[protocol.TASK]["site"]].items():
                arrays[name][:2] = np.cos(angle), np.sin(angle)
            reply.content[protocol.ARRAYS] = to_record(arrays)
        return reply

    return tamper


def test_each_part_is_clustered_by_its_own_signature(config, tmp_path):
    """Hospital and school look alike in the encoder, hospital and court in the decoder."""
    encoder = {"hospital": 0.0, "court": 1.5, "school": 0.1, "bank": 1.6}
    decoder = {"hospital": 0.0, "court": 0.1, "school": 1.5, "bank": 1.6}
    angles = {site: {"encoder": encoder[site], "decoder": decoder[site]} for site in SITES}
    folder, _ = run(gradients(config), tmp_path / "run", tamper=fixed_at(angles))
    clusters, told = folder.read("clusters.json"), folder.read("signatures.json")["parts"]
    assert list(clusters["encoder"].values()) == [["hospital", "school"], ["court", "bank"]]
    assert list(clusters["decoder"].values()) == [["hospital", "court"], ["school", "bank"]]
    assert told["encoder"]["clusters"]["school"] == told["decoder"]["clusters"]["court"] == "gradients-1"
    assert (told["encoder"]["adapter"], told["decoder"]["adapter"]) == ("encoder.0.self_attn", "decoder.-1.fc2")
    # The server really averages by them, and a resumed run keeps them.
    names = {file.name for file in (folder.directory / "checkpoints").glob("0001/*.safetensors")}
    assert names == {f"{part}.gradients-{number}.safetensors" for part in ("encoder", "decoder") for number in (1, 2)}


def test_each_part_has_as_many_clusters_as_its_own_families(config, tmp_path):
    text = FOUR_SITES.replace('"pl-sv"', '"fr-sv"')  # sources: two Germanic, Romance, Slavic
    (tmp_path / "three.toml").write_text(text)
    more = {"cluster.number": 0, "cluster.least": 1, "federation": str(tmp_path / "three.toml")}
    folder = run(gradients(config, **more), tmp_path / "run")[0]
    told = folder.read("signatures.json")["parts"]
    assert (told["encoder"]["num_clusters"], told["decoder"]["num_clusters"]) == (3, 2)
    alone = [text for text in folder.read("run.json")["warnings"] if "shares its encoder with no other site" in text]
    assert len(alone) == 2  # three clusters of four sites
    assert "remedies: a smaller cluster.number" in alone[0]


def test_a_part_that_is_not_clustered_is_not_asked_for(config, tmp_path):
    private = {"signature.form": "private", "signature.noise": 4.0, "cluster.parts": "decoder"}
    folder, grid = run(gradients(config, **private), tmp_path / "run")
    told = folder.read("signatures.json")
    assert {tuple(arrays) for arrays in signatures_of(grid)} == {("decoder",)}
    assert list(told["parts"]) == ["decoder"]
    assert told["epsilon"] == pytest.approx(1.993, abs=0.01)  # of one
    assert len(folder.read("clusters.json")["encoder"]) == 1


def test_one_adapter_makes_the_same_clusters_of_encoder_and_decoder_and_leaves_one_gradient_a_site(config, tmp_path):
    folder, grid = run(gradients(config, **ALONE), tmp_path / "run")
    clusters, told = folder.read("clusters.json"), folder.read("signatures.json")
    assert clusters["encoder"] == clusters["decoder"]
    assert sorted(site for members in clusters["encoder"].values() for site in members) == sorted(SITES)
    for part in ("encoder", "decoder"):
        assert len(clusters[part]) == told["parts"][part]["num_clusters"] == 2
        assert told["parts"][part]["dimensions"] == 256
    # One adapter of the tiny backbone: d_model x dim, twice.
    assert [{name: len(array) for name, array in arrays.items()} for arrays in signatures_of(grid)] == [{"signature": 256}] * 4
    assert told["form"] == "raw"
    assert told["epsilon"] is None
    assert "raw gradient" in (folder.directory / "progress.jsonl").read_text()


def test_a_private_signature_has_at_most_64_numbers_and_states_what_it_cost(config, tmp_path):
    private = {"signature.form": "private", "signature.dim": 16, "signature.noise": 4.0}
    folder, grid = run(gradients(config, **private), tmp_path / "run")
    told = folder.read("signatures.json")
    assert {len(array) for arrays in signatures_of(grid) for array in arrays.values()} == {16}
    assert [sorted(arrays) for arrays in signatures_of(grid)] == [["decoder", "encoder"]] * 4
    assert told["epsilon"] == signature_epsilon(4.0, 1e-5, 2) == pytest.approx(2.943, abs=0.01)  # of one it is 1.993
    assert told["signatures"] == 2
    said = (folder.directory / "progress.jsonl").read_text()
    assert (
        f"32 noised numbers made of the gradient of encoder.0.self_attn and decoder.-1.fc2, once: together ({told['epsilon']:.3g},"
        in said
    )
    assert told["delta"] == 1e-5
    assert "raw gradient" not in (folder.directory / "progress.jsonl").read_text()


def test_gradient_clusters_are_the_same_in_any_order_of_replies_and_on_any_number_of_nodes(config, tmp_path):
    one, _ = run(gradients(config), tmp_path / "one", num_nodes=1)
    other, _ = run(gradients(config), tmp_path / "other", num_nodes=4, shuffle_seed=7)
    assert one.read("clusters.json") == other.read("clusters.json")
    assert one.read("signatures.json")["parts"] == other.read("signatures.json")["parts"]


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
        (None, "not those of a reply"),
    ],
)
@pytest.mark.fault("stopped")
def test_a_bad_signature_is_refused_by_name(config, tmp_path, array, reason):
    def tamper(request, reply):
        if request.metadata.message_type == protocol.SIGNATURE and request.content[protocol.TASK]["site"] == "court":
            reply.content[protocol.ARRAYS] = MetricRecord({"a": 1}) if array is None else to_record({"signature": array})
        return reply

    with pytest.raises(RunError, match=f"court: bad reply: .*{reason}"):
        run(gradients(config, **ALONE), tmp_path / "run", tamper=tamper)


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
    _, grid = run(gradients(config, **{"signature.form": "private"}), tmp_path / "run")
    (asked,) = [m for m in grid.sent if m.metadata.message_type == protocol.SIGNATURE and m.content["task"]["site"] == "court"]
    again = grid._run(_like(asked, {**asked.content[protocol.TASK], "run": "another"}))
    first = next(s for s, reply in zip(signatures_of(grid), _signature_replies(grid), strict=True) if _site(reply) == "court")
    answer = from_record(again.content.array_records[protocol.ARRAYS])
    assert {name: array.tobytes() for name, array in answer.items()} == {name: array.tobytes() for name, array in first.items()}


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
    fixed = fixed_at({site: {"signature": angle} for site, angle in angles.items()})
    directions = ["de-fr", "nl-es", "pl-sv", "cs-de"]
    found = []
    for number, shuffled in enumerate((directions, [directions[n] for n in (2, 0, 3, 1)])):
        text = FOUR_SITES
        for place, label in zip(directions, shuffled, strict=True):
            text = text.replace(f'direction = "{place}"', f'direction = "NEW{label}"')
        file = tmp_path / f"{number}.toml"
        file.write_text(text.replace("NEW", ""))
        folder, _ = run(gradients(config, federation=str(file), **ALONE), tmp_path / f"run-{number}", tamper=fixed)
        found.append(folder.read("clusters.json"))
    assert found[0] == found[1]
    assert list(found[0]["encoder"].values()) == [["hospital", "school"], ["court", "bank"]]
