"""What a node hosts: in simulation its share of the federation file, deployed the sites of its own file and nothing else."""

import os
import stat
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from clients.client_app import app as client_app
from clients.node import DeployedNode, SimulatedNode, node_of
from fedlingua.common.errors import ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.consent.site_file import SITE_FILE
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SplitRules
from fedlingua.corpora.texts import read_sites
from fedlingua.exchange import protocol
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from tests.deployed_sites import ROOMY
from tests.federations import SITES

SHARED = TextRules(SplitRules("shared-side", "k", 0.5, 0.25, 0.25), directions=(Direction("de", "fr"), Direction("pl", "fr")))


RUNS = count(1)


def context(run_config: dict[str, Any], **node: Any) -> Context:
    return Context(run_id=next(RUNS), node_id=1, node_config=node, state=RecordDict(), run_config=run_config)


def site_file(folder: Path, backbone: str = "", more: str = "") -> Path:
    """Two sites of one node; only the first one's text is there."""
    text = "".join(f"Der Satz {number}\tla phrase {number}\n" for number in range(60))
    (folder / "text.tsv").write_text(text)
    sites = "".join(
        f'[[site]]\nname = "{name}"\ndirection = "{direction}"\ntsv = "{corpus}"\n'
        for name, direction, corpus in (("clinic", "de-fr", "text.tsv"), ("court", "pl-fr", "nowhere.tsv"))
    )
    backbones = f'[backbones]\ntiny = "{backbone}"\n' if backbone else ""
    (folder / "site.toml").write_text(f'{sites}[server]\naddress = "a:1"\n{more}{ROOMY}{backbones}')
    return folder / "site.toml"


@pytest.fixture
def settings(tiny_run_config: dict[str, Scalar]) -> Settings:
    return settings_from({**tiny_run_config, "backbone": "demo"})


@pytest.mark.parametrize(
    ("partition", "partitions", "names"),
    [(0, 1, SITES), (0, 2, ["hospital", "school"]), (1, 2, ["court", "bank"]), (2, 3, ["school"]), (0, 4, ["hospital"])],
)
def test_a_simulated_node_hosts_its_share_and_all_together_every_site_once(
    four_sites: dict[str, Scalar], partition: int, partitions: int, names: list[str]
) -> None:
    node = context(four_sites, **{"partition-id": partition, "num-partitions": partitions})
    host = node_of(node, settings_from(four_sites))
    assert isinstance(host, SimulatedNode)
    assert host.names == names


def test_a_simulated_site_has_the_text_and_folder_that_the_federation_and_the_run_give_it(
    four_sites: dict[str, Scalar], tmp_path: Path
) -> None:
    settings = settings_from({**four_sites, "run-dir": str(tmp_path / "run")})
    host = node_of(context(four_sites, **{"partition-id": 0, "num-partitions": 4}), settings)
    whole = read_sites(read_federation(settings.federation_path, Path()), frozenset())
    assert host.texts("hospital", SHARED)["hospital"] == whole["hospital"]
    assert host.directory("hospital", "9f1c") == tmp_path / "run" / "sites" / "hospital"


def test_a_node_with_a_site_file_is_deployed(settings: Settings, tiny_run_config: dict[str, Scalar], tmp_path: Path) -> None:
    host = node_of(context(tiny_run_config, **{SITE_FILE: str(site_file(tmp_path))}), settings)
    assert isinstance(host, DeployedNode)
    assert host.names == ["clinic", "court"]


def deployed(settings: Settings, file: Path) -> DeployedNode:
    host = node_of(context(settings.flat(), **{SITE_FILE: str(file)}), settings)
    assert isinstance(host, DeployedNode)
    return host


def test_a_deployed_site_reads_its_own_text_alone(settings: Settings, tmp_path: Path) -> None:
    text = deployed(settings, site_file(tmp_path)).texts("clinic", SHARED)["clinic"]
    assert text.direction == Direction("de", "fr")
    assert text.account.read == sum(len(pairs) for pairs in text.splits.values()) == 60


def test_the_rules_of_the_message_split_a_deployed_sites_text(settings: Settings, tmp_path: Path) -> None:
    host = deployed(settings, site_file(tmp_path))
    other = TextRules(SplitRules("shared-side", "another key", 0.5, 0.25, 0.25), directions=SHARED.directions)
    assert host.texts("clinic", SHARED)["clinic"].splits != host.texts("clinic", other)["clinic"].splits


def test_a_split_by_components_cannot_be_deployed(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match="'components' needs all sites' text in one place"):
        deployed(settings, site_file(tmp_path)).texts("clinic", TextRules())["clinic"]


def test_text_in_one_language_is_split_at_its_site_alone_in_either_mode(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("".join(f"El paciente vino {number}.\n" for number in range(60)))
    text = '[[site]]\nname = "clinic"\nlanguage = "es"\nlines = "notes.txt"\n[server]\naddress = "a:1"\n'
    (tmp_path / "site.toml").write_text(text)
    host = deployed(settings, tmp_path / "site.toml")
    shared = TextRules(SplitRules("shared-side", "k"), directions=(Direction("es", "es"),))
    components = TextRules(SplitRules("components", "k"), directions=shared.directions)
    assert host.texts("clinic", components) == host.texts("clinic", shared)
    assert host.texts("clinic", shared)["clinic"].account.kept == 60


def test_text_of_a_deployed_site_is_never_mixed(settings: Settings, tmp_path: Path) -> None:
    mixed = TextRules(replace(SHARED.split, mixed=True), directions=SHARED.directions)
    with pytest.raises(ExchangeError, match=r"mixed = true mixes all sites' text, which only a simulation can"):
        deployed(settings, site_file(tmp_path)).texts("clinic", mixed)


def test_no_path_of_the_servers_means_anything_at_a_site(settings: Settings, tmp_path: Path) -> None:
    servers = {"data-dir": "/server/data", "run-dir": "/server/run", "federation": "/server/f.toml"}
    host = deployed(settings_from({**settings.flat(), **servers}), site_file(tmp_path))
    assert not [value for value in host.settings.flat().values() if "/server" in str(value)]
    assert host.directory("clinic", "9f1c") == tmp_path / "state" / "runs" / "9f1c" / "clinic"
    assert len(host.texts("clinic", SHARED)["clinic"].splits["train"]) > 0


def test_a_deployed_run_takes_the_backbone_that_the_site_names(settings: Settings, tmp_path: Path) -> None:
    named = settings_from({**settings.flat(), "backbone": "tiny"})
    assert deployed(named, site_file(tmp_path, "/here/tiny")).settings.backbone == "/here/tiny"
    assert deployed(settings, site_file(tmp_path, "/here/tiny")).settings.backbone == "demo"


def test_a_backbone_by_a_path_of_the_servers_is_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match=r"in \[backbones\]"):
        deployed(settings_from({**settings.flat(), "backbone": "/server/tiny"}), site_file(tmp_path))


@pytest.mark.parametrize(
    ("backbone", "revision"), [("somebody/else", ""), ("facebook/m2m100_418M", "0" * 40), ("../tiny", ""), ("~/tiny", "")]
)
def test_weights_that_nobody_here_has_looked_at_are_refused(
    settings: Settings, tmp_path: Path, backbone: str, revision: str
) -> None:
    chosen = settings_from({**settings.flat(), "backbone": backbone, "backbone-revision": revision})
    with pytest.raises(ExchangeError, match="neither built in nor pinned here"):
        deployed(chosen, site_file(tmp_path))


def test_a_folder_or_a_backbone_of_the_cache_is_none_that_the_site_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even under a pinned one's name, in whose place it would be loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedlingua.backbones.directories.cache_dir", lambda: tmp_path)
    for name in ("theirs", "backbones/trained", "facebook/m2m100_418M"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    for name in ("theirs", "trained", "facebook/m2m100_418M"):
        with pytest.raises(ExchangeError, match="neither built in nor pinned here"):
            deployed(settings_from({**settings.flat(), "backbone": name}), site_file(tmp_path))


def test_a_pinned_backbone_is_taken_by_its_name(settings: Settings, tmp_path: Path) -> None:
    pinned = settings_from({**settings.flat(), "backbone": "facebook/m2m100_418M"})
    assert deployed(pinned, site_file(tmp_path)).settings.backbone == "facebook/m2m100_418M"


def test_a_site_takes_part_in_the_methods_that_it_names(settings: Settings, tmp_path: Path) -> None:
    file = site_file(tmp_path)
    file.write_text(file.read_text().replace("[limits]\n", '[limits]\nmethods = ["adapter-fed"]\n'))
    with pytest.raises(ExchangeError, match=r"method = 'model-fed'; this site's file allows adapter-fed \(\[limits\] methods\)"):
        deployed(settings_from({**settings.flat(), "method": "model-fed"}), file)
    assert deployed(settings_from({**settings.flat(), "method": "adapter-fed"}), file).settings.method == "adapter-fed"


def asked(run_config: dict[str, Any], file: Path, rules: TextRules) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    question = Message(RecordDict({protocol.RULES: ConfigRecord(rules.flat())}), dst_node_id=1, message_type=protocol.DESCRIBE)
    question.metadata.__dict__["_message_id"] = "1"
    return client_app(question, context(run_config, **{SITE_FILE: str(file)}))


def test_a_deployed_node_answers_though_the_servers_files_are_elsewhere(
    tiny_run_config: dict[str, Scalar], tiny_backbone: Path, tmp_path: Path
) -> None:
    """The run config as `fedlingua run --server` submits it, on another machine than the server's."""
    config = {**tiny_run_config, "backbone": "tiny", "federation": "/server/federation.toml", "run-dir": "/server/runs/x"}
    file = site_file(tmp_path, str(tiny_backbone))
    (tmp_path / "nowhere.tsv").write_bytes((tmp_path / "text.tsv").read_bytes())
    reply = asked(config, file, SHARED)
    assert not reply.has_error(), reply.error.reason
    about = reply.content.config_records[f"{protocol.SITE_PREFIX}clinic"]
    assert (about["directions"], about["read"], about["kept"]) == (["de-fr"], 60, 60)
    assert about["train"] + about["dev"] + about["test"] == 60  # type: ignore[operator]


def test_a_deployed_node_says_in_its_own_words_why_it_cannot(
    tiny_run_config: dict[str, Scalar], tiny_backbone: Path, tmp_path: Path
) -> None:
    config = {**tiny_run_config, "backbone": "tiny"}
    reply = asked(config, site_file(tmp_path, str(tiny_backbone)), TextRules())
    assert reply.has_error()
    assert "ExchangeError: the run's [split] mode = 'components'" in str(reply.error.reason)


def test_no_place_of_a_site_leaves_it(tiny_run_config: dict[str, Scalar], tiny_backbone: Path, tmp_path: Path) -> None:
    """A broken corpus and a missing backbone: the server hears the kind, the site's log the file."""
    file = site_file(tmp_path, str(tiny_backbone))
    (tmp_path / "text.tsv").write_text("one column\n")
    for config in ({**tiny_run_config, "backbone": "tiny"}, {**tiny_run_config, "backbone": "demo-encoder"}):
        reason = str(asked(config, file, SHARED).error.reason)
        assert reason in ("CorpusError; the site's log has the rest", "BackboneError; the site's log has the rest")
        assert str(tmp_path) not in reason


def test_a_site_that_could_not_score_its_target_says_so_in_its_log_before_any_round(
    tiny_run_config: dict[str, Scalar], tiny_backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    file = site_file(tmp_path, str(tiny_backbone))
    file.write_text(file.read_text().replace("de-fr", "de-ja"))
    reply = asked({**tiny_run_config, "backbone": "tiny"}, file, SHARED)
    assert str(reply.error.reason) == "ConfigError; the site's log has the rest"
    assert "pip install 'fedlingua[ja]'" in caplog.text


def test_a_sites_log_says_once_that_its_cpu_has_no_bf16(
    tiny_run_config: dict[str, Scalar], tiny_backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("fedlingua.common.devices.cpu_flags", frozenset)
    asked({**tiny_run_config, "backbone": "tiny", "precision": "bf16"}, site_file(tmp_path, str(tiny_backbone)), SHARED)
    assert caplog.text.count("this CPU has no native bf16 and computes in fp32") == 1


def test_a_deployed_site_gives_no_raw_gradients_unless_its_file_says_so_and_its_noise_is_nobodys_guess(
    settings: Settings, tmp_path: Path
) -> None:
    consent = deployed(settings, site_file(tmp_path)).consent("clinic", "run")
    assert (consent.raw, consent.ledger.max_epsilon, consent.ledger.delta) == (False, 10.0, 1e-5)
    assert isinstance(consent.noise, SystemRandom)
    more = "[node]\nraw-gradients = true\nmax-epsilon = 3\nmax-delta = 1e-6\n"
    host = deployed(settings, site_file(tmp_path, more=more))
    consent = host.consent("clinic", "run")
    assert (consent.raw, consent.ledger.max_epsilon, consent.ledger.delta) == (True, 3.0, 1e-6)
    assert consent.ledger.file == host.consent("clinic", "another run").ledger.file  # of all runs together


def test_a_process_reads_a_deployed_sites_text_once_until_its_files_or_the_rules_change(
    settings: Settings, tmp_path: Path
) -> None:
    file = site_file(tmp_path)
    first = deployed(settings, file).texts("clinic", SHARED)
    assert deployed(settings, file).texts("clinic", SHARED) is first
    few = deployed(settings, file).texts("clinic", replace(SHARED, limits=Sizes(train=5)))
    assert len(few["clinic"].splits["train"]) == 5
    (tmp_path / "text.tsv").write_text("".join(f"Der Satz {number}\tla phrase {number}\n" for number in range(50)))
    assert deployed(settings, file).texts("clinic", SHARED)["clinic"].account.read == 50


def test_what_a_deployed_site_has_given_lies_by_site_and_not_by_run(settings: Settings, tmp_path: Path) -> None:
    host = deployed(settings, site_file(tmp_path))
    assert host.signatures("clinic", "one") == host.signatures("clinic", "two") != host.signatures("court", "one")


def test_a_pooled_site_is_hosted_by_the_first_partition_and_never_deployed(four_sites: dict[str, Scalar], tmp_path: Path) -> None:
    pooled = settings_from({**four_sites, "method": "centralized-adapter"})
    names = [node_of(context(four_sites, **{"partition-id": p, "num-partitions": 2}), pooled).names for p in (0, 1)]
    assert names == [["pooled"], []]
    with pytest.raises(ExchangeError, match="pools all sites' text, which only a simulation can"):
        node_of(context(four_sites, **{SITE_FILE: str(site_file(tmp_path))}), pooled)


def test_a_simulated_site_has_a_folder_of_its_own_that_nobody_else_reads(four_sites: dict[str, Scalar], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        node = context(four_sites, **{"partition-id": 0, "num-partitions": 1})
        host = node_of(node, settings_from({**four_sites, "run-dir": str(tmp_path / "run")}))
        folder = host.directory("hospital", "1")
    finally:
        os.umask(before)
    assert folder == tmp_path / "run" / "sites" / "hospital"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
