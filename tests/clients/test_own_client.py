"""A client class of one's own, by the key `client`: docs/guides/client.md's, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from flwr.app import Error, Message

from clients.client_app import CLIENTS
from fedlingua.common.errors import ConfigError, FedlinguaError, RunError
from fedlingua.desk.cli.run import check_experiment
from fedlingua.exchange import protocol
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua.settings.tasks import TASKS
from tests.federations import TWO_SITES
from tests.in_process import checkpoint_bytes, run
from tests.pages import block

Config = dict[str, Scalar]


@pytest.fixture
def config(least_run_config: Mapping[str, Scalar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    for name in ("my_task", "my_state"):
        (tmp_path / f"{name}.py").write_text(block("docs/guides/client.md", f'python title="{name}.py"'))
    monkeypatch.syspath_prepend(tmp_path)
    return {**least_run_config, "federation": str(tmp_path / "two.toml"), "method": "adapter-fed", "rounds": 1}


def test_every_task_has_a_client() -> None:
    assert set(CLIENTS) == set(TASKS)


def test_the_guides_client_trains_and_is_scored_on_its_own_text(config: Config, tmp_path: Path) -> None:
    from my_task import scanned  # type: ignore[import-not-found]

    mine, plain = ({**config, "client": client} for client in ("my_task:ScannedClient", ""))
    read, written = (sources(run(each, tmp_path / str(number))[0]) for number, each in enumerate((mine, plain)))
    assert read == [scanned(sentence) for sentence in written]
    assert read != written


def sources(folder: RunFolder) -> list[str]:
    """What a site's model was asked to translate at the end."""
    lines = (folder.directory / "sites" / "hospital" / "translations.tsv").read_text().splitlines()[1:]
    return [line.split("\t")[0] for line in lines]


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("no_such_file:MyClient", "client = 'no_such_file:MyClient': cannot import 'no_such_file'"),
        ("flwr.client:NumPyClient", "wanted a subclass of clients.site_client.SiteClient"),
        ("fitting:Fitting", "it overrides fit, which a run does not call; wanted train or measure"),
        ("my_task:NoClient", "my_task has no 'NoClient'"),
        ("my_task:ScannedClients", "did you mean 'ScannedClient'"),
        ("my_task:ScannedClient(beta=1)", r"ScannedClient cannot be made \(got an unexpected keyword argument 'beta'\)"),
        ("my_task:ScannedClient(site='a')", "multiple values for argument 'site'"),
    ],
)
def test_a_client_that_is_not_there_is_refused_before_anything_is_loaded(
    config: Config, tmp_path: Path, client: str, words: str
) -> None:
    (tmp_path / "fitting.py").write_text(
        "from clients.translation import TranslationClient\n\n\nclass Fitting(TranslationClient):\n    def fit(self, *given):\n        ..."
    )
    with pytest.raises(FedlinguaError, match=words):
        run({**config, "client": client}, tmp_path / "run")


def test_what_a_client_of_ones_own_stores_is_that_of_the_round_before_when_a_round_is_trained_again(
    config: Config, tmp_path: Path
) -> None:
    lost = list[Message]()

    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        if not lost and (task.get("site"), task.get("round"), request.metadata.message_type) == ("court", 2, protocol.TRAIN):
            lost.append(reply)
            return Message(Error(1, "connection lost"), reply_to=request)
        return reply

    config = {**config, "rounds": 4, "send.code": "none", "client": "my_state:SmoothClient"}
    whole, again = (checkpoint_bytes(run(config, tmp_path / n, tamper=t)[0]) for n, t in (("whole", None), ("again", tamper)))
    assert lost
    assert again == whole
    plain, _ = run({**config, "client": ""}, tmp_path / "plain")
    assert checkpoint_bytes(plain) != whole
    stored = sorted(file.name for file in (tmp_path / "again" / "sites" / "court" / "state").iterdir())
    assert stored == [f"{number:04d}-1.safetensors" for number in (2, 3, 4)]  # and no longer that of round 1


FAILING = """
from clients.translation import TranslationClient


class Failing(TranslationClient):
    def train(self, received, task):
        raise ValueError("alpha has to be positive")
"""


@pytest.mark.fault("stopped")
def test_an_error_in_a_client_of_ones_own_is_told_in_a_simulation_and_stays_at_a_deployed_site(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    config = {**config, "client": "failing:Failing"}
    with pytest.raises(RunError, match=r"ValueError at .* > failing\.py:7 train: alpha has to be positive"):
        run(config, tmp_path / "run")
    monkeypatch.setattr("clients.mods.is_deployed", lambda context: True)
    monkeypatch.setattr("clients.mods.site_file_of", lambda context: None)
    monkeypatch.setattr("clients.mods.log", lambda *given: None)
    with pytest.raises(RunError, match="ValueError; the site's log has the rest") as failed:
        run(config, tmp_path / "deployed")
    assert "alpha" not in str(failed.value)


WITH_ARGUMENTS = """
from clients.translation import TranslationClient

SEEN = []


class Damped(TranslationClient):
    def __init__(self, *given, damping=1.0):
        super().__init__(*given)
        self.damping = damping

    def train(self, received, task):
        SEEN.append(self.damping)
        return super().train(received, task)
"""


def test_a_client_of_ones_own_takes_arguments(config: Config, tmp_path: Path) -> None:
    (tmp_path / "damped.py").write_text(WITH_ARGUMENTS)
    run({**config, "client": "damped:Damped(damping=0.5)"}, tmp_path / "run")
    import damped  # type: ignore[import-not-found]

    assert set(damped.SEEN) == {0.5}


@pytest.mark.parametrize("client", ["MyClient", "my_task:My Client", "my_task:MyClient(1"])
def test_a_client_that_is_no_name_of_a_class_is_refused(config: Config, client: str) -> None:
    with pytest.raises(ConfigError, match=r"client = .* is not known; give 'my_file:MyClient'"):
        settings_from({**config, "client": client})


def test_the_command_says_that_its_file_is_missing(config: Config, tmp_path: Path) -> None:
    experiment = tmp_path / "x.toml"
    experiment.write_text(f'federation = "{tmp_path}/two.toml"\nclient = "my_tsak:ScannedClient"\n')
    with pytest.raises(ConfigError, match=r"client = 'my_tsak:ScannedClient': there is no my_tsak\.py"):
        check_experiment(experiment, None, None, None)
