"""The Kubernetes manifests: they follow the schemas, say the same as compose.yaml, and give no pod more than it needs."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from fedlingua.desk.deployment.server_file import init_server, read_server_file
from tests.deploy.deployment import (
    DEMO,
    DEPLOY,
    KUBERNETES,
    RAY,
    build,
    by_kind,
    check_schema,
    compose,
    dockerfile,
    manifests,
    objects_in,
    pod,
    ray_groups,
)

SERVICES = compose()["services"]
SITES = [name for name in SERVICES if name != "superlink"]
OBJECTS = build(DEMO)
WORKLOADS = by_kind(OBJECTS, "StatefulSet")
(RAY_CLUSTER,) = by_kind(build(RAY), "RayCluster").values()
PODS = {name: pod(workload) for name, workload in WORKLOADS.items()} | {
    group["template"]["spec"]["containers"][0]["name"]: group["template"]["spec"] for group in ray_groups(RAY_CLUSTER)
}
OF_SERVICE = {"superlink": "superlink", **{site: f"{site}-site" for site in SITES}}
VERSIONS = ("1.30", "1.37")
PORT = 9092


def own_container(workload):
    (container,) = pod(workload)["containers"]
    return container


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", manifests(), ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_every_manifest_follows_the_schema(path, version):
    objects = objects_in(path)
    assert objects
    for each in objects:
        check_schema(each, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_demo_renders_to_follows_the_schema(version):
    for each in OBJECTS:
        check_schema(each, version)


def test_the_schema_refuses_a_field_that_does_not_exist():
    service = by_kind(OBJECTS, "Service")["superlink"]
    with pytest.raises(kubernetes_validate.ValidationError):
        check_schema({**service, "spec": {**service["spec"], "port": PORT}}, VERSIONS[-1])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here; the tests' own reading of the folders is tested")
@pytest.mark.parametrize("folder", ["server", "site", "ray", "overlays/demo"])
def test_kubectl_renders_what_these_tests_read(folder):
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    for each in rendered:
        check_schema(each, VERSIONS[0])

    def ordered(objects):
        return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))

    assert ordered(rendered) == ordered(build(KUBERNETES / folder))


def test_kustomize_reaches_every_manifest_and_only_files_that_exist():
    reached = set()
    for path in KUBERNETES.rglob("kustomization.yaml"):
        rules = yaml.safe_load(path.read_text())
        assert (rules["apiVersion"], rules["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
        for resource in rules["resources"]:
            target: Path = (path.parent / resource).resolve()
            assert target.is_file() or (target / "kustomization.yaml").is_file(), f"{path}: no {resource}"
            reached.add(target)
    assert {path.resolve() for path in manifests()} <= reached


def test_the_demo_is_the_same_federation_as_compose():
    assert set(WORKLOADS) == set(OF_SERVICE.values())
    for service, workload in OF_SERVICE.items():
        container = own_container(WORKLOADS[workload])
        assert container["args"] == SERVICES[service]["command"]
        assert container["image"] == SERVICES[service]["image"]
        assert {each["name"]: each["value"] for each in container["env"]} == SERVICES[service]["environment"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts[SERVICES[service]["volumes"][0]["target"]] == "folder"
        assert WORKLOADS[workload]["spec"]["replicas"] == 1


def test_every_object_of_the_demo_is_in_its_one_namespace():
    (namespace,) = by_kind(OBJECTS, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [each for each in OBJECTS if each is not namespace]
    assert {each["metadata"]["namespace"] for each in others} == {namespace["metadata"]["name"]}


def test_the_one_service_is_named_as_in_compose_and_leads_to_the_superlink():
    ((name, service),) = by_kind(OBJECTS, "Service").items()
    assert name == "superlink"
    assert SERVICES[name]["ports"] == [f"{PORT}:{PORT}"]
    ((port),) = service["spec"]["ports"]
    (open_port,) = own_container(WORKLOADS[name])["ports"]
    assert (port["port"], port["targetPort"], open_port["containerPort"]) == (PORT, open_port["name"], PORT)
    assert WORKLOADS[name]["spec"]["serviceName"] == name
    chosen = [
        n
        for n, w in WORKLOADS.items()
        if service["spec"]["selector"].items() <= w["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert chosen == [name]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert own_container(WORKLOADS[name])[probe]["tcpSocket"]["port"] == open_port["name"]


def test_a_site_listens_on_nothing_and_calls_the_server_alone():
    policies = by_kind(OBJECTS, "NetworkPolicy")
    for site in SITES:
        container = own_container(WORKLOADS[f"{site}-site"])
        assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & set(container)
        policy = policies[f"{site}-site"]["spec"]
        assert (policy["policyTypes"], policy["ingress"]) == (["Ingress", "Egress"], [])
        ports = [(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]]
        assert ports == [("UDP", 53), ("TCP", 53), ("TCP", PORT)]


def test_the_server_is_called_on_one_port_and_calls_nobody():
    policy = by_kind(OBJECTS, "NetworkPolicy")["superlink"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": PORT}]}]
    assert policy["egress"] == []


def test_every_workload_and_every_policy_picks_its_own_pods_and_no_others():
    labels = {name: workload["spec"]["template"]["metadata"]["labels"] for name, workload in WORKLOADS.items()}
    selectors = [(name, each["spec"]["selector"]["matchLabels"]) for name, each in WORKLOADS.items()]
    selectors += [(name, each["spec"]["podSelector"]["matchLabels"]) for name, each in by_kind(OBJECTS, "NetworkPolicy").items()]
    assert len(selectors) == 2 * len(WORKLOADS)
    for name, selector in selectors:
        assert [other for other, has in labels.items() if selector.items() <= has.items()] == [name]


@pytest.mark.parametrize("name", PODS)
def test_a_pod_may_run_where_pods_are_restricted(name):
    spec = PODS[name]
    user = int(dict(dockerfile())["USER"].partition(":")[0])
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == user
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False  # SUPERLINK_PORT in the environment is none of Flower's
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_mount_has_its_volume_and_every_volume_is_mounted(name):
    spec = pod(WORKLOADS[name])
    volumes = {volume["name"] for volume in spec["volumes"]}
    claims = {claim["metadata"]["name"] for claim in WORKLOADS[name]["spec"]["volumeClaimTemplates"]}
    mounted = {mount["name"] for each in [*spec["initContainers"], *spec["containers"]] for mount in each["volumeMounts"]}
    assert mounted == volumes | claims
    assert claims == ({"folder"} if name == "superlink" else {"folder", "corpus"})


def test_a_sites_text_is_mounted_read_only():
    for site in SITES:
        (mount,) = [m for m in own_container(WORKLOADS[f"{site}-site"])["volumeMounts"] if m["name"] == "corpus"]
        assert mount == {"name": "corpus", "mountPath": "/site/corpus", "readOnly": True}


def test_the_servers_secret_has_what_it_starts_from_and_nothing_else(tmp_path):
    server = init_server(tmp_path / "server", "demo", ["superlink"], "0.0.0.0:9092", "127.0.0.1:9093", False)
    server.home.mkdir()
    page = (DEPLOY / "README.md").read_text()
    (command,) = re.findall(r"^certificates=.*\ntar -C server -czf - .*?(?= \|)", page, re.MULTILINE)
    subprocess.run(["sh", "-c", f"({command}) > folder.tar.gz"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "folder.tar.gz") as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / "pod", filter="data")
    assert names == [
        "server.toml",
        "federation.toml",
        *(f"certificates/{name}" for name in ("ca.crt", "server.crt", "server.key")),
    ]
    assert read_server_file(tmp_path / "pod").hosts == ("superlink",)


def test_secrets_are_named_and_not_contained():
    assert not [each for path in manifests() for each in objects_in(path) if each["kind"] in ("Secret", "ConfigMap")]
    named = {}
    for name, workload in WORKLOADS.items():
        (named[name],) = [volume["secret"]["secretName"] for volume in pod(workload)["volumes"] if "secret" in volume]
        (unpack,) = pod(workload)["initContainers"]
        (secret, folder) = unpack["volumeMounts"]
        assert secret == {"name": "secret", "mountPath": "/secret", "readOnly": True}
        assert unpack["command"][-2:] == ["/secret/folder.tar.gz", folder["mountPath"]]
    assert named == {"superlink": "server-folder", **{f"{site}-site": f"{site}-folder" for site in SITES}}
