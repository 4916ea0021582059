"""A site's file: what it gives, what each mistake is answered with, and what a run becomes at the site."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.consent.site_file import SiteFile, read_site_file, site_table
from fedlingua.corpora.read import TsvFile
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config

SITE = '[[site]]\nname = "clinic"\ndirection = "de-fr"\ntsv = "text.tsv"\n'
SERVER = '[server]\naddress = "server.example.org:9092"\n'
SETTINGS = settings_from(default_run_config())


def read(folder: Path, text: str = SITE + SERVER) -> SiteFile:
    (folder / "site.toml").write_text(text)
    return read_site_file(folder / "site.toml")


def test_a_short_file_takes_every_default_beside_itself(tmp_path: Path) -> None:
    site = read(tmp_path)
    assert [(one.name, one.direction, one.corpus) for one in site.sites] == [
        ("clinic", Direction("de", "fr"), TsvFile(tmp_path / "text.tsv"))
    ]
    assert (site.path, site.address, site.insecure, site.device) == (
        tmp_path / "site.toml",
        "server.example.org:9092",
        False,
        "",
    )
    places = [site.authority, site.key, site.state, site.home, site.approvals]
    assert [str(place.relative_to(tmp_path)) for place in places] == [
        "ca.crt",
        "keys/site.key",
        "state",
        "flower",
        "approved.txt",
    ]
    assert site.backbones == {}


def test_every_key_of_the_file_is_read_and_absolute_paths_stay(tmp_path: Path) -> None:
    tables = """
    [server]
    address = "[2001:db8::7]:443"
    authority = "/etc/ca.crt"
    insecure = true
    [node]
    key = "k"
    state = "/var/s"
    home = "h"
    device = "cuda"
    [backbones]
    "facebook/m2m100_418M" = "/models/m2m"
    demo = "d"
    """
    site = read(tmp_path, SITE + tables)
    assert (site.address, site.insecure, site.device) == ("[2001:db8::7]:443", True, "cuda")
    assert (site.authority, site.key, site.state, site.home) == (
        Path("/etc/ca.crt"),
        tmp_path / "k",
        Path("/var/s"),
        tmp_path / "h",
    )
    assert site.backbones == {"facebook/m2m100_418M": Path("/models/m2m"), "demo": tmp_path / "d"}


def test_paths_do_not_hang_on_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert read_site_file(Path("site.toml")) == whole


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SERVER, "wanted [[site]]"),
        ("site = 3\n" + SERVER, "wanted [[site]]"),
        (SITE + '[server]\naddress = ""\n', "address = ''; wanted host:port"),
        (SITE + '[server]\naddress = "server"\n', "address = 'server'; wanted host:port"),
        (SITE + '[server]\naddress = ":9092"\n', "address = ':9092'; wanted host:port"),
        (SITE + '[server]\naddress = "server:http"\n', "address = 'server:http'; wanted host:port"),
        (SITE + "[server]\naddress = 9092\n", "address = 9092; wanted host:port"),
        (SITE + SERVER + 'insecure = "no"\n', "insecure = 'no'; wanted true or false"),
        (SITE + SERVER + '[node]\ndevice = "gpu"\n', "device = 'gpu'; choose cpu or cuda"),
        (SITE + SERVER + '[node]\nkeys = "k"\n', "site.toml [node]: keys = 'k': there is no such key; did you mean 'key'?"),
        (
            SITE + '[server]\nadress = "a:1"\n',
            "site.toml [server]: adress = 'a:1': there is no such key; did you mean 'address'?",
        ),
        ("server = 3\n" + SITE, "server = 3; wanted a table"),
        ("rounds = 3\n" + SITE + SERVER, "site.toml: rounds = 3: there is no such key"),
        (SITE.replace('tsv = "text.tsv"\n', "") + SERVER, "site clinic: got no corpus; wanted one of tsv"),
        (SITE + SITE + SERVER, "2 sites have the name 'clinic'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)


def test_a_table_of_a_site_reads_back_whatever_stands_in_it() -> None:
    entry = {"name": "clinic", "direction": "de-fr", "tsv": 'a "b" \\ ü.tsv', "columns": [1, 0]}
    assert tomllib.loads(site_table(entry)) == {"site": [entry]}


def test_a_run_loses_the_servers_paths_and_keeps_all_else(tmp_path: Path) -> None:
    places = {"data_dir": "/server/data", "run_dir": "/server/run", "federation": "/server/f.toml", "resume": True}
    here = read(tmp_path).here(dataclasses.replace(SETTINGS, **places))  # type: ignore[arg-type]
    bounded = {"keep_passes": SETTINGS.rounds, "keep_minutes": 120.0}  # of the limits
    assert here == dataclasses.replace(SETTINGS, data_dir="", run_dir="", federation="", resume=False, **bounded)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "[node]\nprocesses = 2\n",
            "[node]: processes was taken out; leave it out: a site trains in one process. The last version",
        ),
        ("[limits]\nmax-processes = 4\n", "[limits]: processes was taken out; leave it out"),
        ("[limits]\nmin-adapter-init-std = 0.01\n", "[limits]: adapter.init-std was taken out; leave it out"),
        (
            '[limits]\ntensor-sets = ["lora", "ia3"]\n',
            "[limits]: tensor-set = 'ia3' was taken out; give tensor-set = 'lora' or 'adapters'",
        ),
    ],
)
def test_what_was_taken_out_is_told_with_since_when(tmp_path: Path, written: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, SITE + SERVER + written)
    assert f"site.toml {told}" in str(caught.value)


def test_the_sites_own_backbone_and_device_go_before_the_runs(tmp_path: Path) -> None:
    site = read(tmp_path, SITE + SERVER + '[node]\ndevice = "cuda"\n[backbones]\ndemo = "own"\n"/server/b" = "there"\n')
    assert (site.here(SETTINGS).backbone, site.here(SETTINGS).device) == (str(tmp_path / "own"), "cuda")
    assert site.here(dataclasses.replace(SETTINGS, backbone="/server/b")).backbone == str(tmp_path / "there")
    assert site.here(dataclasses.replace(SETTINGS, backbone="facebook/m2m100_418M")).backbone == "facebook/m2m100_418M"


def test_quantized_weights_need_a_site_with_a_gpu(tmp_path: Path) -> None:
    asked = dataclasses.replace(SETTINGS, frozen_bits=4, device="cuda")
    assert read(tmp_path, SITE + SERVER).here(asked).frozen_bits == 4
    with pytest.raises(
        ExchangeError, match="frozen-bits = 4 needs a GPU, and the site's file gives device = 'cpu'; give 'cuda' there"
    ):
        read(tmp_path, SITE + SERVER + '[node]\ndevice = "cpu"\n').here(asked)


@pytest.mark.parametrize("backbone", ["/models/x", "./x", "../x", "~/x"])
def test_a_backbone_that_is_a_path_of_the_servers_is_refused(tmp_path: Path, backbone: str) -> None:
    with pytest.raises(ExchangeError, match=r"in \[backbones\]"):
        read(tmp_path).here(dataclasses.replace(SETTINGS, backbone=backbone))


def test_each_run_and_site_has_a_folder_of_its_own_in_the_state(tmp_path: Path) -> None:
    assert read(tmp_path).run_directory("9f1c", "clinic") == tmp_path / "state" / "runs" / "9f1c" / "clinic"


@pytest.mark.parametrize("run", ["", "..", "../..", "/etc", "a/b", ".hidden"])
def test_no_name_that_the_server_gives_a_run_leads_out_of_the_state(tmp_path: Path, run: str) -> None:
    with pytest.raises(ConfigError, match="the server calls the run"):
        read(tmp_path).run_directory(run, "clinic")


def test_the_overlap_key_lies_relative_to_the_file_and_none_named_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, f'{SITE}{SERVER}[node]\noverlap-key = "keys/shared"\n').overlap_key == tmp_path / "keys" / "shared"
    assert read(tmp_path, f'{SITE}{SERVER}[node]\noverlap-key = ""\n').overlap_key is None
    assert read(tmp_path).overlap_key is None


def test_a_process_that_answered_waits_ten_minutes_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path).idle_minutes == 10.0
    assert read(tmp_path, SITE + SERVER + "[node]\nidle-minutes = 0\n").idle_minutes == 0.0
    with pytest.raises(ConfigError, match=r"\[node\]: idle-minutes = -1; wanted a number, 0 or more"):
        read(tmp_path, SITE + SERVER + "[node]\nidle-minutes = -1\n")
