"""Coded changes both ways: by hand, and in whole runs that are killed, lose messages, and gain and lose sites."""

import shutil
import zlib
from contextlib import suppress

import numpy as np
import pytest
from flwr.app import Array

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.coding.change import decode_change, encode_change
from fedlingua.exchange.coding.coder import decode, encode, generator_of
from fedlingua.exchange.held import NamedState, digest_of
from fedlingua.exchange.joined import Joined, runs
from fedlingua.exchange.records import from_record, to_record
from fedlingua.exchange.selected import Selection, pack_selected, unpack_selected
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.layers.codes import decoded_selection, decoded_update, encode_downlink, stretch
from fedlingua.settings.checks import settings_from
from fedlingua.settings.codes import parse_code
from tests.faults.test_resume import begin, final_bytes, losses, resume
from tests.in_process import InProcessGrid, rounds, run, run_on
from tests.selected import mask_of

SET = TensorSet("adapters", (TensorSpec("e", (3,), "encoder", 0), TensorSpec("d", (2, 2), "decoder", 0)))
SIZES = {"encoder": 3, "decoder": 4}
FOUR = {"send.code": "4bit"}
CODES = {"levels": FOUR, "top": {"send.code": "4bit top 0.1"}, "sign": {"send.code": "sign", "send.code-down": "4bit"}}


@pytest.fixture
def families(four_sites):
    return {**four_sites, "method": "adapter-families", "rounds": 4}


def state(value, number=0):
    """Two clusters of encoders, one of decoders."""
    draws = np.random.default_rng(number)
    tensors = {
        "encoder": {name: {"e": (value + draws.normal(size=3)).astype(np.float32)} for name in ("a", "b")},
        "decoder": {"all": {"d": (value + draws.normal(size=(2, 2))).astype(np.float32)}},
    }
    return State(tensors)


def settings(**keys):
    return settings_from({**_defaults(), "method": "adapter-fed", **keys})


def _defaults():
    from fedlingua.settings.experiment import default_run_config

    return default_run_config()


# --- By hand -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["8bit", "4bit", "sign", "4bit top 0.5"])
def test_what_sites_are_given_and_what_is_left_are_the_new_state(code):
    before, after, how = state(0), state(1, number=7), settings(**{"send.code": code})
    result = encode_downlink(before, after, SET, how, 1)
    for part, clusters in after.tensors.items():
        name = SET.of_part(part)[0].name
        for cluster, tensors in clusters.items():
            now, left = result[0].tensors[part][cluster][name], result[0].of_layers[f"residual/{part}.{cluster}"]
            np.testing.assert_allclose(now.ravel() + left, tensors[name].ravel(), atol=1e-6)
            old = np.ravel(before.tensors[part][cluster][name])
            payload = np.frombuffer(result[1][digest_of(old), digest_of(now)], np.uint8)
            shape = [SET.of_part(part)[0].shape]
            assert np.array_equal(decode_change(old, payload, shape, how.code_down), now.ravel())


def test_what_was_left_goes_out_later():
    """Of a state that does not change any more, sites have all in the end."""
    how, now, wanted = settings(**{"send.code": "3bit"}), state(0), state(1, number=7)
    for number in range(1, 12):
        step = state(0)
        moved = {
            part: {
                cluster: {
                    name: now.tensors[part][cluster][name] + (wanted_change(part, cluster, name, wanted) if number == 1 else 0)
                }
                for cluster, tensors in clusters.items()
                for name in tensors
            }
            for part, clusters in step.tensors.items()
        }
        now = encode_downlink(now, State(moved, of_layers=now.of_layers), SET, how, number)[0]
    for part, clusters in wanted.tensors.items():
        for cluster, tensors in clusters.items():
            for name, tensor in tensors.items():
                np.testing.assert_allclose(now.tensors[part][cluster][name], tensor, atol=1e-3)


def wanted_change(part, cluster, name, wanted):
    return wanted.tensors[part][cluster][name] - state(0).tensors[part][cluster][name]


def test_an_exact_code_carries_the_numbers_themselves():
    before, after = state(0), state(1, number=7)
    result = encode_downlink(before, after, SET, settings(**{"send.code": "lossless"}), 1)
    assert not result[0].of_layers
    for part, clusters in after.tensors.items():
        for cluster, tensors in clusters.items():
            for name, tensor in tensors.items():
                assert np.array_equal(result[0].tensors[part][cluster][name], tensor)


@pytest.mark.parametrize(
    ("keys", "bits"),
    [
        ({}, 4),
        ({"method": "metasend-l"}, 0),
        ({"method": "adapter-local"}, 0),
        ({"send.code": "none"}, 0),
        ({"send.code": "6bit"}, 6),
    ],
)
def test_by_default_changes_have_four_bits_wherever_a_site_sends_all_of_them(keys, bits):
    how = settings(**keys)
    assert (how.code_up.bits, how.code_down.bits) == (bits, bits)


def test_a_code_that_is_not_used_leaves_a_runs_hash_alone():
    assert settings(method="metasend-l").hash() == settings(method="metasend-l", **{"send.code": "none"}).hash()
    assert settings().hash() != settings(**{"send.code": "none"}).hash()


def test_a_cluster_that_stays_is_not_coded():
    before = state(0)
    assert not encode_downlink(before, before, SET, settings(**FOUR), 1)[1]


@pytest.mark.parametrize("name", ["none", "lossless", "4bit", "2bit", "4bit top 0.1", "4bit rank 4"])
def test_in_the_first_round_and_without_loss_a_number_goes_no_further_than_its_steps(name):
    assert stretch(parse_code(name), 1, 0.0) == (1 if " " not in name else pytest.approx(stretch(parse_code(name), 1, 9.0)))
    assert stretch(parse_code("lossless"), 9, 5.0) == 1


@pytest.mark.parametrize("name", ["8bit", "4bit", "4bit nearest", "3bit", "2bit", "sign", "4bit top 0.1", "sign top 0.03"])
@pytest.mark.parametrize("rates", [[1.0] * 12, [1 - step / 12 for step in range(12)], [0.01, 1.0, 0.01, 0.01]])
def test_no_honest_site_goes_further_than_its_steps_and_what_a_code_has_left(name, rates):
    """Every number moves by a round's rate at most, the hardest way: all by as much, with signs that stay or that are drawn."""
    code, generator = parse_code(name), np.random.default_rng(7)
    for signs in (np.ones(400), generator.choice([-1.0, 1.0], 400)):
        residual = np.zeros(400, np.float32)
        for number, rate in enumerate(rates, 1):
            change = (rate * signs * np.where(np.arange(400) % 7, generator.uniform(0, 1, 400), 1.0)).astype(np.float32)
            sent = decode(encode(change + residual, [(400,)], code, generator), [(400,)], code)
            residual = change + residual - sent
            fall = max(rates[: number - 1], default=0.0) / rate
            assert np.abs(sent).max() <= stretch(code, number, fall) * rate * 1.0001


def test_further_than_its_steps_a_number_goes_only_by_what_was_left():
    assert stretch(parse_code("4bit"), 9, 1.0) == pytest.approx(7 / 6)
    assert stretch(parse_code("4bit"), 9, 6.0) == pytest.approx(2)
    assert stretch(parse_code("2bit"), 9, 1.0) == 9
    assert stretch(parse_code("4bit top 0.1"), 9, 1.0) == pytest.approx(9 * 7 / 6)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"encoder": np.zeros(4, np.uint8)}, "'decoder' is wrong"),
        ({"encoder": np.zeros(4, np.uint8), "decoder": np.zeros(4, np.uint8), "more": np.zeros(1)}, "'more' is wrong"),
        ({"encoder": np.zeros(3, np.float32), "decoder": np.zeros(4, np.uint8)}, "float32"),
        ({"encoder": np.zeros((2, 2), np.uint8), "decoder": np.zeros(4, np.uint8)}, "uint8"),
        ({"encoder": np.zeros(0, np.uint8), "decoder": np.zeros(4, np.uint8)}, "payload"),
    ],
)
def test_an_update_that_is_no_change_is_refused(arrays, words):
    received = {"e": np.zeros(3, np.float32), "d": np.zeros((2, 2), np.float32)}
    with pytest.raises(ExchangeError, match=words):
        decoded_update(arrays, received, SET, parse_code("4bit"))


def test_an_update_is_the_same_in_whatever_bytes_its_levels_are_written():
    """Stored, not Huffman-coded, the same levels take other bytes: sent again so, they would pass for a new update."""
    received, code = {"e": np.zeros(3, np.float32), "d": np.zeros((2, 2), np.float32)}, parse_code("4bit nearest")
    payloads = {}
    for part, size in SIZES.items():
        payloads[part] = encode(np.ones(size, np.float32), SET.shapes_of(part), code, generator_of(1, 1, "a", part))
    digests = set()
    for level in (9, 0):
        written = {part: rewritten(payload, -(-SIZES[part] // 2), level) for part, payload in payloads.items()}
        tensors, digest = decoded_update(written, received, SET, code)
        assert tensors["e"].tolist() == [1, 1, 1]
        digests.add(digest)
    assert len(digests) == 1


def rewritten(payload, size, level):
    """A payload whose last stream, of so many bytes, is compressed anew."""
    for start in range(len(payload)):
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        with suppress(zlib.error):
            content = stream.decompress(payload[start:])
            if len(content) == size and stream.eof and not stream.unused_data:
                again = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
                return np.frombuffer(payload[:start] + again.compress(content) + again.flush(), np.uint8)
    raise AssertionError("no stream")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"send.code": "5 bits"}, "is not a code"),
        ({"send.code-down": "half"}, "is not a code"),
        ({"send.code": "sign", "method": "adapter-fed", "send.rule": "top-k"}, "selection top-k leaves nothing behind"),
        ({"send.code": "4bit top 0.1", "method": "adapter-fed", "send.rule": "apf"}, "selection apf leaves nothing behind"),
        ({"send.code": "4bit nearest", "method": "adapter-fed", "send.rule": "dp-g"}, "selection dp-g leaves nothing behind"),
    ],
)
def test_what_does_not_go_with_a_code_is_said_before_the_run(keys, words):
    with pytest.raises(ConfigError, match=words):
        settings(**keys)


# --- What a rule chose -----------------------------------------------------------------------------------------------------------

BOTH = TensorSet(
    "both", (TensorSpec("a", (4,), "encoder", 0), TensorSpec("b", (2, 3), "encoder", 0), TensorSpec("c", (3,), "decoder", 0))
)


def chosen(grain):
    if grain == "tensors":
        return Selection(BOTH, np.isin(BOTH.names, ["b"]))
    places = {"encoder": [0, 1, 0, 0, 1, 1, 1, 0, 0, 0], "decoder": [0, 0, 0]}
    return Selection(BOTH, numbers={part: np.array(bits, bool) for part, bits in places.items()})


def packed(selection, old, new, code):
    """As a site packs it."""
    arrays, started = pack_selected(new, selection), pack_selected(old, selection)
    for part in {"encoder", "decoder"} & started.keys():
        draws = generator_of(1, 1, "court", part)
        shapes = selection.shapes_of(part)
        payload = encode_change(started[part], arrays[part], None, shapes, parse_code(code), draws).payload
        arrays[part] = np.frombuffer(payload, np.uint8)
    return arrays


@pytest.mark.parametrize("grain", ["tensors", "numbers"])
@pytest.mark.parametrize("code", ["8bit", "2bit", "lossless"])
def test_chosen_numbers_come_within_a_level_of_their_tensor_and_others_as_they_were(grain, code):
    draws, selection = np.random.default_rng(5), chosen(grain)
    old, new = ({spec.name: draws.normal(size=spec.shape).astype(np.float32) for spec in BOTH.specs} for _ in range(2))
    got, _ = decoded_selection(packed(selection, old, new, code), old, BOTH, parse_code(code))
    update, again = unpack_selected(got, BOTH, runs(old, BOTH))
    masks = Joined({part: mask_of(selection, part) for part in ("encoder", "decoder")}, BOTH)
    assert all(np.array_equal(mask_of(again, part), mask_of(selection, part)) for part in ("encoder", "decoder"))
    for name in old:
        moved, sent = (new[name] - old[name])[masks[name]], masks[name]
        np.testing.assert_array_equal(update[name][~sent], old[name][~sent])
        if code == "lossless":
            np.testing.assert_array_equal(update[name][sent], new[name][sent])
        elif sent.any():
            level = np.abs(moved).max() / parse_code(code).top_level
            assert np.abs(update[name][sent] - new[name][sent]).max() <= level * 1.001


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("encoder", np.zeros(9, np.uint8), "another code"),
        ("encoder", np.zeros(6, np.float32), "float32"),
        ("decoder", np.zeros(9, np.uint8), "uint8"),
        ("more", np.zeros(9, np.uint8), "'more'"),
        ("mask", np.full(1, 0b11100000, np.uint8), "'decoder' is missing|another code"),
        ("mask", np.full(2, 255, np.uint8), "bytes"),
    ],
)
def test_a_choice_that_is_none_is_refused(name, array, words):
    old = {spec.name: np.zeros(spec.shape, np.float32) for spec in BOTH.specs}
    new = {spec.name: np.ones(spec.shape, np.float32) for spec in BOTH.specs}
    arrays = {**packed(chosen("tensors"), old, new, "4bit"), name: array}
    with pytest.raises(ExchangeError, match=words):
        unpack_selected(decoded_selection(arrays, old, BOTH, parse_code("4bit"))[0], BOTH, runs(old, BOTH))


@pytest.mark.parametrize("rule", ["top-k", "metasend-l", "apf"])
def test_a_rule_with_a_code_sends_fewer_bytes_and_a_lossless_one_the_same_tensors(families, tmp_path, rule):
    config = {**families, "rounds": 2, "send.rule": rule, "meta.batches": 2, "meta.batch-size": 2}
    folders = {code: run({**config, "send.code": code}, tmp_path / code)[0] for code in ("none", "lossless", "4bit")}
    assert final_bytes(folders["lossless"]) == final_bytes(folders["none"])
    assert losses(folders["lossless"]) == losses(folders["none"])
    up = {code: folder.read("scores.json")["uplink_bytes_per_round"] for code, folder in folders.items()}
    assert up["4bit"] < up["none"]
    assert not [failure for line in rounds(folders["4bit"]) for failure in line["failures"]]
    first, second = (losses(folders["4bit"])[number][1] for number in (0, 2))
    assert second < first


# --- Whole runs ----------------------------------------------------------------------------------------------------------------


def test_a_lossless_run_has_the_same_tensors(families, tmp_path):
    families = {**families, "rounds": 2}
    plain, _ = run(families, tmp_path / "plain")
    folder, _ = run({**families, "send.code": "lossless"}, tmp_path / "coded")
    assert final_bytes(folder) == final_bytes(plain)
    assert losses(folder) == losses(plain)


def test_four_bits_learn_as_much_from_a_fraction_of_the_bytes(families, tiny_backbone, tmp_path):
    families = {**families, "backbone": str(tiny_backbone), "rounds": 4, "learning-rate": 0.01, "adapter.dim": 64}
    plain, _ = run(families, tmp_path / "plain")
    folder, _ = run({**families, **FOUR}, tmp_path / "coded")
    gained = [found[0][1] - found[-1][1] for found in (losses(plain), losses(folder))]
    assert gained[0] > 0
    assert gained[1] == pytest.approx(gained[0], rel=0.1)
    total = folder.read("scores.json")["total_bytes"]
    assert (
        total["up"] + total["down"] < 0.2 * total["fp32"]
    )  # of which much is registration, in so short a run of so small a model


@pytest.mark.parametrize("way", CODES)
def test_a_killed_run_ends_in_the_same_bytes_whatever_the_order_of_replies(families, tmp_path, way):
    config = {**families, **CODES[way], "rounds": 2}
    whole, _ = run(config, tmp_path / "whole")
    folder = resume(config, begin(config, tmp_path / "killed", number=2), shuffle_seed=3)
    assert final_bytes(folder) == final_bytes(whole)
    assert losses(folder) == losses(whole)
    assert not [failure for line in rounds(whole) for failure in line["failures"]]


def test_changes_go_down_and_a_copy_where_a_site_has_lost_what_they_are_of(families, tmp_path):
    config, lost = {**families, **FOUR}, []

    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if (task.get("site"), task.get("round"), asked.metadata.message_type) == ("court", 2, protocol.TRAIN) and not lost:
            shutil.rmtree(tmp_path / "lost" / "sites" / "court" / "received")
            lost.append(reply)
        return reply

    whole, _ = run(config, tmp_path / "whole")
    folder, live = run(config, tmp_path / "lost", tamper=tamper)
    assert lost
    assert final_bytes(folder) == final_bytes(whole)
    kinds = {
        (message.content[protocol.TASK]["site"], message.content[protocol.TASK]["round"]): kinds_of(message)
        for message in live.sent
        if message.metadata.message_type in (protocol.TRAIN, protocol.EVALUATE)
    }
    assert kinds["court", 3] == {"float32"}
    assert {each for asked, each in kinds.items() if asked != ("court", 3) for each in each} == {"uint8"}


def kinds_of(message):
    return {array.dtype for array in message.content[protocol.ARRAYS].values()}


class LateBank(InProcessGrid):
    """The bank's node connects once round 2 has been asked for: what all began with is no base any more."""

    def get_node_ids(self):
        late = sum(message.metadata.message_type == protocol.TRAIN for message in self.sent) > 3
        return [100, 101, 102, 103] if late else [100, 101, 102]


def test_a_site_that_comes_late_is_given_a_copy_and_then_changes(families, tmp_path):
    config = {**families, **FOUR, "quorum": 0.5, "rounds": 3, "deadline.join-s": 1.0, "run-dir": str(tmp_path / "run")}
    grid = LateBank(config, 4)
    run_on(grid, config)
    asked = [message for message in grid.sent if message.content.config_records.get(protocol.TASK, {}).get("site") == "bank"]
    given_to = [kinds_of(message) for message in asked if NamedState.of(message.content) and message.content[protocol.ARRAYS]]
    assert given_to[0] == {"float32"}
    assert all(kinds == {"uint8"} for kinds in given_to[1:])
    assert len(given_to) > 1


def test_a_site_whose_reply_is_lost_goes_on_from_its_last_residual(families, tmp_path):
    """The reply of round 2 never counts, so round 3 starts from what was left after round 1."""
    stages = []

    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if asked.metadata.message_type == protocol.TRAIN and task["site"] == "court":
            stages.append(list(task["own"]))
            if task["round"] == 2:
                return None
        return reply

    config = {**families, **FOUR, "quorum": 0.5, "deadline.phase-s": 1.0, "rounds": 3}
    folder, _ = run(config, tmp_path / "run", tamper=tamper)
    assert [failure["site"] for failure in rounds(folder)[2]["failures"]][:1] == ["court"]
    assert stages[:2] == [[0, 0], [1, 1]]
    assert all(stage == [1, 1] for stage in stages[2:3])


@pytest.mark.parametrize("change", ["cut", "other", "floats", "foreign"])
def test_a_payload_that_is_none_is_refused_by_name(families, tmp_path, change):
    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if asked.metadata.message_type == protocol.TRAIN and (task["site"], task["round"]) == ("court", 1):
            arrays = from_record(reply.content.array_records[protocol.ARRAYS])
            part = "encoder"
            arrays[part] = {
                "cut": arrays[part][:-1],
                "other": np.append(np.uint8(255), arrays[part][1:]),
                "floats": arrays[part].astype(np.float32),
                "foreign": arrays["decoder"][:9],
            }[change]
            reply.content.array_records[protocol.ARRAYS] = to_record(arrays)
        return reply

    folder, _ = run({**families, **FOUR, "quorum": 0.5, "rounds": 2}, tmp_path / "run", tamper=tamper)
    refused = [failure for failure in rounds(folder)[1]["failures"] if failure["kind"] == "refused"]
    assert {failure["site"] for failure in refused} == {"court"}
    assert all("bad reply: " in failure["reason"] for failure in refused)
    assert not rounds(folder)[2]["failures"]


def test_a_change_of_what_the_site_does_not_have_is_asked_for_whole(families, tmp_path):
    """A server that believes in another base than the site has: its request is answered with what is missing."""
    from fedlingua.exchange.held import NotHeldError
    from fedlingua.exchange.received import ReceivedFiles

    files = ReceivedFiles(tmp_path, SET, {"e": np.zeros(3, np.float32), "d": np.zeros((2, 2), np.float32)}, parse_code("4bit"))
    result = encode_downlink(state(0), state(1, number=7), SET, settings(**FOUR), 1)
    (old, new), payload = next(iter(result[1].items()))
    from flwr.app import ArrayRecord, RecordDict

    named = NamedState(1, 0, {"encoder": new, "decoder": new}, {"encoder": old})
    content = RecordDict(
        {protocol.STATE: named.record(), protocol.ARRAYS: ArrayRecord({"encoder": Array(np.frombuffer(payload, np.uint8))})}
    )
    with pytest.raises(NotHeldError, match=old):
        files.receive(content)


def test_a_falling_rate_leaves_no_honest_site_out(families, tmp_path):
    """What four bits have left of rounds at a higher rate comes with the last ones, whose steps are short."""
    falls = {"rounds": 8, "schedule": "linear", "optimizer-state": "kept", "keep.choose": False}
    folder, _ = run({**families, **FOUR, **falls}, tmp_path)
    assert [round_["failures"] for round_ in rounds(folder)] == [[]] * 9
