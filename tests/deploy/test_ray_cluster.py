"""The Ray cluster for `fedlingua run --ray-address`: its fields are KubeRay's, its pods are the same machine many times over, and the
guides name its address."""

import contextlib
import copy
import os
import re
import subprocess
import tempfile
import time

import grpc
import jsonschema
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedlingua.desk.processes import HOST, end, free_port, program
from fedlingua.runs.folder import RunFolder
from tests.deploy.deployment import RAY, ROOT, build, by_kind, check_schema, compose, dockerfile, ray_groups

OBJECTS = build(RAY)
((NAME, CLUSTER),) = by_kind(OBJECTS, "RayCluster").items()
HEAD, WORKERS = ray_groups(CLUSTER)
PODS = {"head": HEAD["template"]["spec"], "workers": WORKERS["template"]["spec"]}
CONTAINERS = {name: spec["containers"][0] for name, spec in PODS.items()}
VERSION = "1.30"
GUIDES = ("deploy/README.md", "docs/guides/scaling.md")
BYTES = {"Mi": 2**20, "Gi": 2**30}


def size(quantity):
    number, unit = re.fullmatch(r"(\d+)(\w+)", quantity).groups()
    return int(number) * BYTES[unit]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (("spec",), "rayVersion", "rayVersions"),
        (("spec", "headGroupSpec"), "rayStartParams", "raystartParams"),
        (("spec", "workerGroupSpecs", 0), "replicas", "replica"),
        (("spec", "workerGroupSpecs", 0, "template", "spec"), "volumes", "volume"),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0), "workingDir", "workdir"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_schema_refuses_a_misspelt_field(path, old, new):
    wrong = copy.deepcopy(CLUSTER)
    place = wrong
    for step in path:
        place = place[step]
    place[new] = place.pop(old)
    with pytest.raises(jsonschema.ValidationError, match=new):
        check_schema(wrong, VERSION)


def test_the_schema_refuses_a_parameter_of_ray_that_is_no_string():
    wrong = copy.deepcopy(CLUSTER)
    wrong["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    with pytest.raises(jsonschema.ValidationError, match="is not of type 'string'"):
        check_schema(wrong, VERSION)


def test_the_version_of_ray_is_the_pinned_one():
    assert f"ray=={CLUSTER['spec']['rayVersion']}" in (ROOT / "constraints.txt").read_text().splitlines()


def test_all_machines_are_the_one_image_and_see_the_same_folders():
    """Which `fedlingua run --ray-address` needs: the app, in the image, and working directory, text and cache on the shared volume."""
    (claim,) = by_kind(OBJECTS, "PersistentVolumeClaim").values()
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for name, spec in PODS.items():
        (container,) = spec["containers"]
        assert container["image"] == compose()["services"]["superlink"]["image"]
        (volume,) = [each["name"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
        assert {"name": volume, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in spec["volumes"]
        assert container["volumeMounts"] == CONTAINERS["head"]["volumeMounts"]
        (shared,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume]
        assert container["workingDir"] == shared, name
        assert container["env"] == CONTAINERS["head"]["env"]
        cache = {each["name"]: each["value"] for each in container["env"]}["XDG_CACHE_HOME"]
        assert cache.startswith(f"{shared}/")
    assert dict(dockerfile())["WORKDIR"] not in {mount["mountPath"] for mount in CONTAINERS["head"]["volumeMounts"]}


def test_every_mount_has_its_volume_and_ray_can_write_where_it_does():
    for spec in PODS.values():
        (container,) = spec["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
        assert {"/tmp", "/dev/shm"} < {mount["mountPath"] for mount in container["volumeMounts"]}
        assert not [mount for mount in container["volumeMounts"] if mount.get("readOnly")]


def test_the_object_store_fits_into_shared_memory_and_that_into_the_memory():
    for group, spec in zip((HEAD, WORKERS), PODS.values(), strict=True):
        (memory,) = [
            each["emptyDir"]["sizeLimit"] for each in spec["volumes"] if each.get("emptyDir", {}).get("medium") == "Memory"
        ]
        limits = spec["containers"][0]["resources"]["limits"]
        assert int(group["rayStartParams"]["object-store-memory"]) < size(memory) < size(limits["memory"])


def test_ray_start_has_these_parameters():
    from ray.scripts.scripts import start

    options = {option for parameter in start.params for option in parameter.opts}
    for group in (HEAD, WORKERS):
        assert {f"--{name}" for name in group["rayStartParams"]} <= options


def test_kuberay_may_set_the_command_and_finds_ray_in_any_shell():
    assert not [container for container in CONTAINERS.values() if {"command", "args"} & set(container)]
    assert "ray.io/overwrite-container-cmd" not in CLUSTER["metadata"].get("annotations", {})
    rules = dockerfile()
    (path,) = re.findall(r"PATH=(\S+):\$PATH", [rest for instruction, rest in rules if instruction == "ENV"][-1])
    (login,) = [rest for instruction, rest in rules if instruction == "RUN" and "/etc/profile.d/" in rest]
    assert login == rf'echo "PATH={path}:\$PATH" > /etc/profile.d/fedlingua.sh'


def test_clients_run_on_workers_alone_whose_cpus_kuberay_reads_from_the_limit():
    assert HEAD["rayStartParams"]["num-cpus"] == "0"
    assert "num-cpus" not in WORKERS["rayStartParams"]
    assert int(CONTAINERS["workers"]["resources"]["limits"]["cpu"]) >= 1
    assert WORKERS["minReplicas"] <= WORKERS["replicas"] <= WORKERS["maxReplicas"]


def test_pods_are_probed_without_wget_and_the_dashboard():
    """KubeRay puts in the probes that are missing, with `wget` of pages of Ray's dashboard; the image has neither."""
    assert HEAD["rayStartParams"]["include-dashboard"] == "false"
    (worker_port,) = CONTAINERS["workers"]["ports"]
    assert WORKERS["rayStartParams"]["node-manager-port"] == str(worker_port["containerPort"])
    for container in CONTAINERS.values():
        (port,) = container["ports"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["grpc"] == {"port": port["containerPort"]}


def test_the_pods_of_the_cluster_talk_to_each_other_and_to_nobody_else():
    (policy,) = [each["spec"] for each in by_kind(OBJECTS, "NetworkPolicy").values()]
    ours = {"matchLabels": {"ray.io/cluster": NAME}}  # KubeRay's own label
    assert policy["podSelector"] == ours
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"from": [{"podSelector": ours}]}]
    inside, names = policy["egress"]
    assert inside == {"to": [{"podSelector": ours}]}
    assert [(port["protocol"], port["port"]) for port in names["ports"]] == [("UDP", 53), ("TCP", 53)]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_names_the_address_of_the_head(guide):
    (port,) = [each["containerPort"] for each in CONTAINERS["head"]["ports"] if each["name"] == "gcs-server"]
    service = f"{NAME}-head-svc"  # so KubeRay names it
    text = (ROOT / guide).read_text()
    assert f"--ray-address {service}:{port}" in text
    assert f"exec service/{service} -- fedlingua run" in re.sub(r" -it? ", " ", text)
    assert set(re.findall(r"[\w-]+-head-svc", text + (RAY / "raycluster.yaml").read_text())) == {service}


@pytest.fixture
def cluster():
    """Starts nodes of a cluster on loopback, with the parameters of the pods, and waits until they answer the pods' probes."""
    nodes, port = [], free_port()
    with tempfile.TemporaryDirectory(
        prefix="fl-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:  # Ray's sockets need short paths

        def start(group, probed, **more):
            given = {**group["rayStartParams"], "node-ip-address": HOST, "object-store-memory": "80000000", **more}
            options = [f"--{name}={value}" if value != "" else f"--{name}" for name, value in given.items()]
            command = [program("ray"), "start", "--block", "--disable-usage-stats", *options]
            nodes.append(subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": ""}))
            wait_until_serving(probed, nodes[-1])
            return nodes[-1]

        try:
            start(HEAD, port, **{"head": "", "port": port, "temp-dir": folder})
            for probed in (free_port(), free_port()):
                start(WORKERS, probed, **{"address": f"{HOST}:{port}", "node-manager-port": probed, "num-cpus": 1})
            yield f"{HOST}:{port}", nodes
        finally:
            for node in reversed(nodes):
                kill(node)


def kill(node):
    """End a node at once, as a machine that loses its power."""
    if node.poll() is None:
        top = psutil.Process(node.pid)
        end([top, *top.children(recursive=True)], 0.0)
        node.wait()


def wait_until_serving(port, process):
    """Ray says nowhere that its head and its nodes answer gRPC's health check."""
    ends = time.monotonic() + 120
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        while process.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(grpc.RpcError):
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
                return
            time.sleep(0.5)
    pytest.fail(f"nothing serves at port {port}")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_machine_killed_in_the_middle_of_a_run_costs_no_tensor(cluster, tmp_path):
    def command(name, *more):
        keys = [f"--set={key}" for key in ("rounds=4", "keep.choose=false", "score-split=dev")]
        return [program("fedlingua"), "run", "experiments/demo.toml", *keys, "--to", str(tmp_path / name), *more]

    address, nodes = cluster
    with subprocess.Popen(command("cluster", "--ray-address", address), cwd=ROOT) as running:
        rounds = tmp_path / "cluster" / "rounds.jsonl"
        while running.poll() is None and (not rounds.is_file() or len(rounds.read_text().splitlines()) < 3):
            time.sleep(0.1)
        kill(nodes[-1])
        assert running.wait() == 0
    assert subprocess.run(command("here"), cwd=ROOT, check=False).returncode == 0
    there, here = (RunFolder(tmp_path / name) for name in ("cluster", "here"))
    assert there.checkpoints.rounds() == here.checkpoints.rounds()
    last = here.checkpoints.rounds()[-1]
    for file in sorted((here.checkpoints.directory / f"{last:04d}").glob("*.safetensors")):
        assert file.read_bytes() == (there.checkpoints.directory / f"{last:04d}" / file.name).read_bytes(), file.name
    assert there.read("scores.json")["sites"] == here.read("scores.json")["sites"]
