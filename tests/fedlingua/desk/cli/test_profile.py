"""Places to run, as pyproject-flwr.toml names them."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.cli.profile import Profile

PROFILES = """
[superlink.simulation]
address = ":local:"

[fedlingua.simulation]
cpus-per-node = 1

[superlink.simulation-gpu]
address = ":local:"

[fedlingua.simulation-gpu]
gpus-per-node = 0.25

[superlink.deployment]
address = "superlink.example:9093"
root-certificates = "ca.crt"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pyproject-flwr.toml").write_text(PROFILES, encoding="utf-8")
    return tmp_path / "pyproject-flwr.toml"


def test_profiles(file: Path) -> None:
    assert Profile.read(file, "simulation") == Profile("simulation", ":local:")
    assert Profile.read(file, "simulation-gpu").gpus_per_node == 0.25
    deployment = Profile.read(file, "deployment")
    assert not deployment.local
    assert deployment.root_certificates == str(file.parent / "ca.crt")
    with pytest.raises(
        ConfigError, match=r"--profile 'cluster' is not known; choose one of simulation, simulation-gpu, deployment"
    ):
        Profile.read(file, "cluster")
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        Profile.read(file.parent / "absent.toml", "simulation")


def test_a_simulation_can_be_on_a_ray_cluster_and_a_deployment_cannot(file: Path) -> None:
    file.write_text(PROFILES.replace("cpus-per-node = 1", 'ray-address = "10.0.0.5:6379"'), encoding="utf-8")
    there = Profile.read(file, "simulation")
    assert there == Profile("simulation", ":local:", ray_address="10.0.0.5:6379")
    assert Profile.read(file, "simulation", "10.0.0.6:6379").ray_address == "10.0.0.6:6379"
    with pytest.raises(ConfigError, match=r"ray-address = 'a:1': profile 'deployment' runs across sites"):
        Profile.read(file, "deployment", "a:1")
    file.write_text(PROFILES + '[fedlingua.deployment]\nray-address = "a:1"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="runs across sites"):
        Profile.read(file, "deployment")


def test_the_projects_own_profiles_can_be_read() -> None:
    file = Path(__file__).resolve().parents[4] / "pyproject-flwr.toml"
    assert Profile.read(file, "simulation").local
    assert Profile.read(file, "simulation-gpu").gpus_per_node > 0
    assert not Profile.read(file, "deployment").local


@pytest.mark.parametrize(
    ("cpus", "runs", "cores", "each"), [(1, 1, 2, 1), (1, 2, 2, 2), (1, 2, 16, 2), (1, 4, 2, 2), (4, 2, 16, 8), (4, 2, 2, 4)]
)
def test_simulations_side_by_side_have_no_more_clients_at_work_than_cores(cpus: int, runs: int, cores: int, each: int) -> None:
    place = Profile("here", ":local:", cpus_per_node=cpus).side_by_side(runs, cores)
    assert place == Profile("here", ":local:", cpus_per_node=each)
