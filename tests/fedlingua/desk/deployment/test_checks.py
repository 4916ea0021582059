"""What a site proves before it joins: each check against a site that is right and one that is wrong in just that."""

import dataclasses
import os
import re
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.consent.approval import sends
from fedlingua.consent.ledger import Entry
from fedlingua.consent.limits import SiteLimits
from fedlingua.consent.site_file import SiteFile
from fedlingua.corpora.sites import Federation, read_federation
from fedlingua.corpora.texts import read_text
from fedlingua.desk import units
from fedlingua.desk.check_result import CheckResult
from fedlingua.desk.deployment.certificates import make_certificates
from fedlingua.desk.deployment.checks import PROCESS_BYTES, check_site, look_at_gpus, memory_estimate
from fedlingua.desk.deployment.site_setup import approve, init_site, make_key
from fedlingua.desk.outline_of_run import outline_of
from fedlingua.evaluation import text_metrics
from fedlingua.exchange.protocol import (
    DESCRIBE,
    DIGESTS,
    EVALUATE,
    KEYS,
    LEAKS,
    PROBE,
    SEND,
    SENT_BY_A_SITE,
    SHARES,
    SIGNATURE,
    TRAIN,
    UNMASK,
)
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.training import pieces

SMALL = SiteLimits(min_train=1, min_dev=1, min_test=1)


@pytest.fixture
def settings(tiny_run_config: dict[str, Scalar]) -> Settings:
    return settings_from(tiny_run_config)


@pytest.fixture
def site(tmp_path: Path) -> SiteFile:
    """With a key, and an authority for a server that nobody runs."""
    make_certificates(tmp_path / "ca", ["127.0.0.1"])
    corpus = {"phrasebook": "hospital", "sentences": 60}
    return init_site(tmp_path / "site", "clinic", "de-fr", corpus, "127.0.0.1:1", tmp_path / "ca" / "ca.crt")[0]


def federation(folder: Path, name: str = "clinic", direction: str = "de-fr", key: str = "") -> Federation:
    line = f'public-key = "{key}"\n' if key else ""
    rules = '[split]\nmode = "shared-side"\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n[cleaning]\nmin-words = 1\n'
    (folder / "f.toml").write_text(f'{rules}[[site]]\nname = "{name}"\ndirection = "{direction}"\n{line}')
    return read_federation(folder / "f.toml", Path())


def findings(
    site: SiteFile,
    settings: Settings,
    known: Federation | None = None,
    expected: str = "",
    measure: bool = False,
    limits: SiteLimits = SMALL,
) -> dict[str, CheckResult]:
    site = dataclasses.replace(site, limits=limits)
    return {
        finding.what: finding for finding in check_site(site, settings, known, expected, knock=False, built=[], measure=measure)
    }


def test_a_site_that_is_right_has_one_fault_the_server_that_is_not_there(
    site: SiteFile, settings: Settings, tmp_path: Path
) -> None:
    key = site.key.with_suffix(".pub").read_text().strip()
    found = findings(site, settings, federation(tmp_path, key=key))
    assert list(found) == [
        "corpora",
        "scores",
        "federation",
        "key",
        "backbone",
        "steps",
        "knowledge",
        "memory",
        "disk",
        "partners",
        "server",
    ]
    assert [what for what, finding in found.items() if not finding.good] == ["server"]
    assert found["server"].text.startswith("not reachable: 127.0.0.1:1 refuses the connection")


def test_a_site_is_told_of_how_many_sentences_its_steps_are(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    train = int(re.search(r"train (\d+)", findings(site, settings)["corpora"].text)[1])  # type: ignore[index]
    rest = dataclasses.replace(settings, batch_size=10, whole_steps=False)
    words = f"clinic: optimizer steps on {train % 10} (smallest), 10 (usual) and 10 (largest) examples"
    assert findings(site, rest, limits=dataclasses.replace(SMALL, min_batch=1))["steps"].text.startswith(words)
    for by in (rest, dataclasses.replace(settings, tokens_per_batch=40)):
        found = findings(site, by)["corpora" if by is rest else "steps"]
        assert (found.good, "[limits] min-batch" in found.text) == (False, True)


def test_a_site_is_told_whom_it_is_averaged_with_or_that_it_is_alone(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    clustered = dataclasses.replace(settings, method="adapter-families")
    federation(tmp_path)
    (tmp_path / "f.toml").write_text((tmp_path / "f.toml").read_text() + '[[site]]\nname = "court"\ndirection = "pl-fr"\n')
    known = read_federation(tmp_path / "f.toml", Path())
    found = findings(site, clustered, known)["partners"]
    assert (found.text, found.remark) == ("encoder all: clinic, court; decoder Romance: clinic, court", False)
    found = findings(site, dataclasses.replace(clustered, cluster_least=1), known)["partners"]
    assert found.remark
    assert "site clinic shares its encoder with no other site" in found.text


def test_a_backbone_that_knows_nothing_of_the_text_is_a_remark(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    lines = [f"El médico examina al paciente {number}.\tThe doctor sees patient {number}.\n" for number in range(40)]
    (tmp_path / "es-en.tsv").write_text("".join(lines))
    real = init_site(
        tmp_path / "real", "clinic", "es-en", {"tsv": str(tmp_path / "es-en.tsv")}, "127.0.0.1:1", tmp_path / "ca" / "ca.crt"
    )[0]
    found = findings(real, dataclasses.replace(settings, backbone="demo"), measure=True)["knowledge"]
    assert (found.good, found.remark) == (True, True)
    assert "direction es-en: backbone 'demo' was never trained to write English" in found.text
    assert "so it knows nothing of this text" in found.text
    known = findings(site, dataclasses.replace(settings, backbone="demo"), measure=True)["knowledge"]
    assert not known.remark
    assert known.text.startswith("dev loss of the backbone in nats a token: clinic ")


def test_text_that_the_sites_own_limits_call_too_little_is_told_with_its_account(
    site: SiteFile, settings: Settings, tmp_path: Path
) -> None:
    found = next(iter(check_site(site, settings, federation(tmp_path), "", knock=False, built=[])))
    assert (found.what, found.good) == ("corpora", False)
    assert found.text.startswith("clinic (de-fr): read 60, kept ")
    assert "[limits] min-" in found.text


@pytest.mark.parametrize("mode", ["components", "shared-side"])
def test_text_of_two_hosted_sites_is_counted_as_the_node_uses_it(
    site: SiteFile, settings: Settings, tmp_path: Path, mode: str
) -> None:
    text = f'[split]\nmode = "{mode}"\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n'
    for name in ("one", "two"):
        notes = [f"Nota {name} {number}. Firma {number % 40} del médico." for number in range(80)]
        (tmp_path / f"{name}.txt").write_text("\n".join(notes) + "\n", encoding="utf-8")
        text += f'[[site]]\nname = "{name}"\nlanguage = "es"\nlines = "{name}.txt"\n'
    (tmp_path / "two.toml").write_text(text)
    known = read_federation(tmp_path / "two.toml", tmp_path)
    counts = findings(dataclasses.replace(site, sites=known.sites), settings, known)["corpora"].text
    for each in known.sites:
        splits = read_text([each], known.rules)[each.name].splits
        assert f"{each.name} (es): read 160" in counts
        assert f"; train {len(splits['train'])}, dev {len(splits['dev'])}, test {len(splits['test'])}" in counts


def test_an_insecure_site_is_told_what_that_means_and_needs_no_key(site: SiteFile, settings: Settings) -> None:
    found = findings(dataclasses.replace(site, insecure=True), settings)
    assert "key" not in found
    assert all(finding.good for finding in found.values())
    assert "anybody between may read and change" in found["certificate"].text


def test_what_fedlingua_writes_at_a_site_no_other_can_change_whatever_the_umask(
    site: SiteFile, settings: Settings, tmp_path: Path
) -> None:
    before = os.umask(0o002)
    try:
        another = init_site(
            tmp_path / "another", "clinic", "de-fr", {"phrasebook": "hospital"}, "127.0.0.1:1", tmp_path / "ca" / "ca.crt"
        )[0]
        approve(another.approvals, "0" * 64)
    finally:
        os.umask(before)
    assert findings(another, settings)["key"].good


@pytest.mark.parametrize("place", ["", "site.toml"])
def test_what_others_can_change_at_a_site_is_told(site: SiteFile, settings: Settings, place: str) -> None:
    changed = site.path.parent / place if place else site.path.parent
    changed.chmod(changed.stat().st_mode | 0o020)
    key = findings(site, settings)["key"]
    assert not key.good
    assert key.text == f"{changed} can be changed by others, who could approve code and settings; chmod go-w it"


def test_the_corpus_is_counted_under_the_federations_rules(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    told = findings(site, settings, federation(tmp_path))["corpora"].text
    assert told.startswith("clinic (de-fr): read 60, kept ")
    numbers = [int(word.strip(",;")) for word in told.split() if word.strip(",;").isdigit()]
    read, kept, *_, train, dev, test = numbers
    assert (read, kept) == (60, train + dev + test)
    assert train > max(dev, test)
    strict = dataclasses.replace(federation(tmp_path).rules.cleaning, min_words=50)
    rules = dataclasses.replace(federation(tmp_path).rules, cleaning=strict)
    none = findings(site, settings, dataclasses.replace(federation(tmp_path), rules=rules))["corpora"]
    assert not none.good
    assert "none of 60 pairs was kept" in none.text


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"name": "court"}, "'clinic' is not in the federation file; send its join file"),
        ({"direction": "de-es"}, "the federation file says de-es, the site's file de-fr"),
    ],
)
def test_a_federation_that_knows_the_site_otherwise_is_told(
    site: SiteFile, settings: Settings, tmp_path: Path, other: dict[str, Any], told: str
) -> None:
    found = findings(site, settings, federation(tmp_path, **other))["federation"]
    assert not found.good
    assert told in found.text


def test_a_federation_with_another_key_is_told_with_both_fingerprints(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    found = findings(site, settings, federation(tmp_path, key=make_key(tmp_path / "other.key")))["federation"]
    assert not found.good
    assert found.text.count("SHA256:") == 2


def test_a_missing_key_is_a_finding_of_its_own_and_no_crash(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    known = federation(tmp_path, key=site.key.with_suffix(".pub").read_text().strip())
    site.key.with_suffix(".pub").unlink()
    found = findings(site, settings, known)
    assert (found["federation"].good, found["key"].good) == (False, False)
    assert "site.pub" in found["federation"].text
    assert "put it back, or make another site: fedlingua site init --to FOLDER" in found["key"].text


def test_a_key_that_others_can_read_is_told(site: SiteFile, settings: Settings) -> None:
    site.key.chmod(0o640)
    found = findings(site, settings)["key"]
    assert not found.good
    assert "mode 640); chmod 600 it" in found.text


def test_two_keys_that_do_not_belong_together_are_told(site: SiteFile, settings: Settings, tmp_path: Path) -> None:
    make_key(tmp_path / "other.key")
    site.key.with_suffix(".pub").write_bytes((tmp_path / "other.pub").read_bytes())
    assert "does not belong to" in findings(site, settings)["key"].text
    site.key.write_text("no key")
    assert "holds no private key in OpenSSH's form" in findings(site, settings)["key"].text


def test_the_fingerprint_is_compared_as_far_as_it_was_given(site: SiteFile, settings: Settings) -> None:
    fingerprint = outline_of(settings).backbone.fingerprint
    for expected in (fingerprint, fingerprint[:8]):
        found = findings(site, settings, expected=expected)["backbone"]
        assert found.good
        assert found.text.endswith("as the server has it")
    assert findings(site, settings)["backbone"].text.endswith("compare it with what the server's run shows")
    other = findings(site, settings, expected="0" * 8)
    assert not other["backbone"].good
    assert f"{fingerprint[:16]}; the server has 00000000" in other["backbone"].text
    assert "memory" not in other  # nothing to estimate of a backbone that is another


def test_a_backbone_that_lacks_the_sites_language_is_told(settings: Settings, tmp_path: Path) -> None:
    """M2M-100 knows no Telugu."""
    (tmp_path / "text.tsv").write_text("".join(f"Satz {number}\tvakyam {number}\n" for number in range(60)))
    site, _ = init_site(tmp_path / "site", "clinic", "de-te", {"tsv": str(tmp_path / "text.tsv")}, "127.0.0.1:1", None)
    found = findings(site, settings)
    assert [what for what, finding in found.items() if not finding.good] == ["backbone"]
    assert "'te'" in found["backbone"].text


def test_the_memory_of_the_tiny_backbone_adds_up_by_hand(settings: Settings) -> None:
    """d_model 32, 2+2 layers, feed-forward 64; adapters of 4; batches of 8 sentences of at most 32 tokens."""
    outline = outline_of(settings)
    vocabulary = outline.backbone.config.vocab_size
    norm, attention, feed_forward = 2 * 32, 4 * (32 * 32 + 32), (32 * 64 + 64) + (64 * 32 + 32)
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    adapters = (2 * 2 + 2 * 3) * ((32 * 4 + 4) + (4 * 32 + 32))
    norms = (2 * 2 + 2 * 3 + 2) * norm
    tokens = 8 * 32
    assert memory_estimate(settings, outline) == {
        "process": PROCESS_BYTES,
        "backbone": 4 * (vocabulary * 32 + 2 * encoder + 2 * decoder + 2 * norm + adapters),
        "trained tensors": 6 * 4 * (adapters + norms),
        "activations": tokens * (2 + 2) * (14 * 32 + 2 * 64) * 4,
        "output layer": 2 * tokens * vocabulary * 4,
    }


def test_an_ensemble_needs_the_backbone_twice_where_that_is_more_than_training(settings: Settings) -> None:
    outline = outline_of(settings)
    choosing = dataclasses.replace(settings, keep_choose=True, batch_size=1, max_tokens=1)
    parts = memory_estimate(choosing, outline)
    training = parts["trained tensors"] + parts["activations"] + parts["output layer"]
    assert parts["second model"] == 4 * outline.backbone.num_parameters - training > 0
    for other in ({"keep_ensemble": False}, {"batch_size": 64, "max_tokens": 100}):
        assert "second model" not in memory_estimate(dataclasses.replace(choosing, **other), outline)


def test_the_memory_of_an_encoder_adds_up_by_hand(tiny_run_config: dict[str, Scalar], tiny_encoder: Path) -> None:
    """hidden 32, 2 layers, feed-forward 64; the whole of it trains."""
    config = {**tiny_run_config, "task": "masked-language", "backbone": str(tiny_encoder), "method": "model-fed"}
    settings = settings_from(config)
    outline = outline_of(settings)
    parts = memory_estimate(settings, outline)
    assert parts["backbone"] == 4 * outline.backbone.num_parameters
    assert parts["trained tensors"] == 6 * parts["backbone"]
    assert parts["activations"] == 8 * 32 * 2 * (14 * 32 + 2 * 64) * 4
    assert parts["output layer"] == 2 * 8 * 32 * outline.backbone.config.vocab_size * 4


def test_a_site_with_text_in_one_language_is_right_without_a_tokenizer_of_bleu(
    tiny_run_config: dict[str, Scalar], tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of translations into Japanese it would take MeCab, which is not everywhere."""

    def missing(tokenize: str) -> None:
        raise RuntimeError(f"no packages for {tokenize}")

    monkeypatch.setattr(text_metrics, "BLEU", missing)
    (tmp_path / "notes.txt").write_text("".join(f"the patient took aspirin for {number} days.\n" for number in range(600)))
    text = {"lines": str(tmp_path / "notes.txt")}
    site, _ = init_site(tmp_path / "site", "clinic", "ja", text, "127.0.0.1:1", None)
    config = {**tiny_run_config, "task": "masked-language", "backbone": str(tiny_encoder), "method": "model-fed"}
    found = findings(site, settings_from(config))
    assert [finding.text for finding in found.values() if not finding.good] == []
    assert found["scores"].text == "ja: perplexity, accuracy"
    assert "memory" in found


def test_documents_that_a_hook_fails_on_are_told_by_type(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = "def hook(text):\n    if 'for 3 ' in text:\n        raise KeyError(text)\n    return text\n"
    (tmp_path / "hook_of_checks.py").write_text(hook)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "notes").mkdir()
    for number in range(60):
        (tmp_path / "notes" / f"{number}.txt").write_text(f"the patient took aspirin for {number} days.\n")
    text = {"notes": str(tmp_path / "notes"), "deidentify-with": "hook_of_checks:hook"}
    site, _ = init_site(tmp_path / "site", "clinic", "en", text, "127.0.0.1:1", None)
    told = findings(site, settings)["corpora"].text
    assert "dropped not-deidentified 1; documents not de-identified: KeyError 1; " in told


def test_a_site_is_told_that_its_cpu_has_no_bf16(site: SiteFile, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dataclasses.replace(settings, precision="bf16")
    for flags, told in ((frozenset(), True), (frozenset({"bf16"}), False)):
        monkeypatch.setattr("fedlingua.common.devices.cpu_flags", lambda flags=flags: flags)
        assert findings(site, asked)["backbone"].text.endswith("has no native bf16 and computes in fp32") == told


@pytest.mark.usefixtures("native_bf16")
def test_half_precision_halves_the_activations_and_a_base_run_trains_nothing(settings: Settings) -> None:
    outline = outline_of(settings)
    full = memory_estimate(settings, outline)
    half = memory_estimate(dataclasses.replace(settings, precision="bf16"), outline)
    assert half == {**full, "activations": full["activations"] // 2}
    assert memory_estimate(dataclasses.replace(settings, method="base"), outline)["trained tensors"] == 0


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_layers_take_a_fraction_of_the_memory(settings: Settings, bits: int) -> None:
    """The matrices of 2 + 2 layers, d_model 32, feed-forward 64; a twentieth more for their scales."""
    outline = outline_of(settings)
    full = memory_estimate(settings, outline)
    numbers = (2 + 4) * 4 * 32 * 32 + 4 * 2 * 32 * 64
    less = numbers * 4 - numbers * bits * 21 // 160
    assert memory_estimate(dataclasses.replace(settings, frozen_bits=bits), outline) == {
        **full,
        "backbone": full["backbone"] - less,
    }


def test_a_budget_of_tokens_and_a_head_in_chunks_are_reckoned_with(settings: Settings) -> None:
    outline = outline_of(settings)
    vocabulary = outline.backbone.config.vocab_size
    parts = memory_estimate(dataclasses.replace(settings, tokens_per_batch=500, head_chunk=10), outline)
    assert parts["activations"] == 500 * (2 + 2) * (14 * 32 + 2 * 64) * 4
    assert parts["output layer"] == 2 * 10 * vocabulary * 4


def test_a_large_frozen_head_is_reckoned_with_by_its_own_chunks(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LARGE_HEAD", 1)
    monkeypatch.setattr(pieces, "CHUNK", {"cpu": 128, "cuda": 200})
    asked = dataclasses.replace(settings, tokens_per_batch=500)
    outline = outline_of(asked)
    of_a_token = 2 * outline.backbone.config.vocab_size * 4
    for changes, tokens in (
        ({}, 128),
        ({"head_chunk": -1}, 500),
        ({"tensor_set": "full"}, 500),
        ({"device": "cuda"}, 200),
        ({"device": "cuda", "head_chunk": -1}, 500),
    ):
        assert memory_estimate(dataclasses.replace(asked, **changes), outline)["output layer"] == tokens * of_a_token


@pytest.mark.parametrize(
    ("micro_tokens", "accumulation", "tokens"),
    # Batches are of 8 x 32 tokens; a sentence may have 32, and a step has no more than its batches.
    [(0, 4, 256), (-1, 4, 256), (100, 4, 100), (10, 4, 32), (600, 4, 600), (5000, 4, 1024), (600, 1, 256)],
)
def test_micro_tokens_say_how_much_goes_through_at_once(
    settings: Settings, micro_tokens: int, accumulation: int, tokens: int
) -> None:
    outline = outline_of(settings)
    asked = dataclasses.replace(settings, micro_tokens=micro_tokens, accumulation=accumulation)
    assert memory_estimate(asked, outline)["activations"] == tokens * (2 + 2) * (14 * 32 + 2 * 64) * 4


def test_a_gpu_with_too_little_memory_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [10 * 2**30]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free[0], 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    built = [outline_of(settings)]
    assert "10.74 GB of 85.90 GB are free" in look_at_gpus(dataclasses.replace(settings, device="cuda"), built)
    free[0] = 5
    with pytest.raises(DeploymentError, match="5 B of"):
        look_at_gpus(dataclasses.replace(settings, device="cuda"), built)
    monkeypatch.setattr("fedlingua.common.devices.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="frozen-bits = 8 needs bitsandbytes"):
        look_at_gpus(dataclasses.replace(settings, device="cuda", frozen_bits=8), built)


def test_with_controllers_the_whole_model_is_trained_and_the_added_layers_take_activations_too(settings: Settings) -> None:
    settings = dataclasses.replace(settings, tensor_set="controllers", controllers=3)
    outline = outline_of(settings)
    parts = memory_estimate(settings, outline)
    assert parts["trained tensors"] == 6 * 4 * outline.trained.num_parameters == 6 * parts["backbone"]
    assert parts["activations"] == 8 * 32 * (2 + 3 + 2 + 3) * (14 * 32 + 2 * 64) * 4
    travels = outline.tensor_set.num_parameters
    assert f"{travels} numbers of 4 bytes" in sends(settings, outline.tensor_set)[TRAIN]
    assert travels < outline.trained.num_parameters


def test_too_little_memory_is_told_with_what_would_help(
    site: SiteFile, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = int(1.3 * sum(memory_estimate(settings, outline_of(settings)).values()))
    memory = namedtuple("memory", "available")
    for free, good in ((wanted, True), (wanted - 1, False)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: memory(free))
        found = findings(site, settings)["memory"]
        assert found.good is good
        assert (
            "smaller tokens-per-batch (or batch-size and max-tokens), memory.micro-tokens or memory.head-chunk" in found.text
        ) is not good


def test_a_disk_that_is_full_is_told(site: SiteFile, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(100 * 2**20))
    found = findings(site, settings)["disk"]
    assert not found.good
    assert "104.86 MB are free" in found.text


@pytest.mark.parametrize(
    ("method", "told"),
    [("adapter-local", "no tensors under adapter-local"), ("adapter-families", "numbers of 4 bytes")],
)
def test_the_list_of_what_is_sent_follows_the_method(settings: Settings, method: str, told: str) -> None:
    settings = dataclasses.replace(settings, method=method)
    outline = outline_of(settings)
    listed = sends(settings, outline.tensor_set)
    others = {SIGNATURE, DIGESTS, LEAKS, PROBE, SEND, KEYS, SHARES, UNMASK}
    assert set(listed) == set(SENT_BY_A_SITE) - others
    assert told in listed[TRAIN]
    num = outline.tensor_set.num_parameters
    assert (f"{num} numbers of 4 bytes, {units.data(4 * num)}" in listed[TRAIN]) is (method == "adapter-families")
    assert listed[DESCRIBE] == SENT_BY_A_SITE[DESCRIBE]


def test_secure_sums_are_listed_with_what_the_server_does_not_see(settings: Settings) -> None:
    listed = sends(dataclasses.replace(settings, privacy_sum="secure"), None)
    assert "as whole numbers under masks, of which the server learns the sum over a cluster alone" in listed[TRAIN]
    assert {KEYS, SHARES, UNMASK} <= set(listed)


def test_without_a_backbone_the_list_still_names_the_tensors(settings: Settings) -> None:
    assert "the tensors that travel;" in sends(settings, None)[TRAIN]


def test_a_selection_is_listed_with_what_else_it_sends(settings: Settings) -> None:
    def listed(**changes) -> dict[str, str]:
        return dict(sends(dataclasses.replace(settings, **changes), None))

    assert "of the tensors that travel what dp-g takes, and which that is;" in listed(selection="dp-g")[TRAIN]
    assert "every tensor's relative change, and the threshold; sums of loss" in listed(selection="fixed-l")[TRAIN]
    learned = listed(selection="metasend-l", second_filter=True)
    assert TRAIN not in learned
    assert "what metasend-l takes" in learned[SEND]
    assert learned[EVALUATE].endswith("one number of the threshold's slope, 25 of the second filter's")
    assert "slope" not in listed(selection="top-k")[EVALUATE]


def test_a_signature_is_listed_for_clusters_by_gradients_alone_and_says_in_which_form(tiny_run_config) -> None:
    def listed(**changes):
        return sends(settings_from({**tiny_run_config, **changes}), None).get(SIGNATURE, "nothing")

    assert listed(method="adapter-families") == "nothing"
    assert "text can be read" in listed(method="adapter-gradients")
    private = listed(method="adapter-gradients", **{"signature.form": "private"})
    assert "64 noised numbers for each of encoder.0.self_attn and decoder.-1.fc2" in private


def test_a_site_is_told_what_private_training_will_spend_of_its_budget(site: SiteFile, settings: Settings) -> None:
    private = dataclasses.replace(settings, dp_epsilon=8.0, rounds=5, local_epochs=4)
    told = findings(site, private)["privacy"]
    assert told.good
    assert "clinic: the run brings what it has spent from epsilon = 0 to 8 of 10 (max-epsilon) at delta = 1e-05" in str(told)
    assert "by noise of 2.68 clips in each of 20 steps" in str(told)
    shared = str(findings(site, dataclasses.replace(private, dp_noise="shares"))["privacy"])
    assert "to 7.99 of 10 (max-epsilon)" in shared
    assert "by noise of 2.86 clips in each of 20 steps, made in shares of 3 honest sites" in shared
    site.ledger("clinic").enter(Entry(0.7, key="key", what="a signature", run=""))
    told = findings(site, private)["privacy"]
    assert not told.good
    assert "from epsilon = 6.65 to 11.2" in str(told)
    by_document = findings(site, dataclasses.replace(private, dp_unit="document"))
    assert "dp.unit = 'document', and the site's corpus does not say which document" in str(by_document["corpora"])
    assert "the run hides a document, and this site's ledger counts what was told of a sentence" in str(by_document["privacy"])
    assert "privacy" not in findings(site, settings)


def test_a_site_is_told_what_private_signatures_will_spend_of_its_budget(site: SiteFile, settings: Settings) -> None:
    signed = dataclasses.replace(
        settings, method="adapter-gradients", signature_form="private", signature_noise=2.0, cluster_parts="both"
    )
    told = findings(site, signed)["privacy"]
    assert told.good
    assert "from epsilon = 0 to 6.57 of 10 (max-epsilon) at delta = 1e-05, by signatures with noise of 2 clips" in str(told)
    both = findings(site, dataclasses.replace(signed, dp_epsilon=8.0, rounds=5, local_epochs=4))["privacy"]
    assert not both.good
    assert "to 11.2 of 10 (max-epsilon)" in str(both)
    assert "steps and signatures with noise of 2 clips; ask for a smaller dp.epsilon" in str(both)


@pytest.mark.parametrize(
    ("check", "changes", "rules", "told"),
    [
        ("corpora", {"batch_size": 32}, "", "an update of 1 optimizer steps; this site's file allows 3 and more"),
        ("corpora", {}, 'mode = "components"', "needs all sites' text in one place"),
        ("signature", {"method": "adapter-gradients", "signature_form": "raw"}, "", "[node] raw-gradients = true"),
    ],
)
def test_what_the_site_would_refuse_in_the_run_is_told_before_it_joins(
    site: SiteFile, settings: Settings, tmp_path: Path, check: str, changes: dict[str, Any], rules: str, told: str
) -> None:
    federation(tmp_path)
    (tmp_path / "f.toml").write_text(
        (tmp_path / "f.toml").read_text().replace('mode = "shared-side"', rules or 'mode = "shared-side"')
    )
    found = findings(site, dataclasses.replace(settings, **changes), read_federation(tmp_path / "f.toml", Path()))
    assert told in found[check].text
    assert not found[check].good
