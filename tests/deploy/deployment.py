"""The files under deploy/, read as the programs read them that they are for."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DEMO = KUBERNETES / "overlays" / "demo"
RAY = KUBERNETES / "ray"
RAY_SCHEMA = json.loads((Path(__file__).parent / "raycluster.schema.json").read_text())
VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")

Object = dict[str, Any]


def compose(text: str | None = None) -> Object:
    """compose.yaml with every variable at its default."""
    text = (DEPLOY / "compose.yaml").read_text() if text is None else text
    return yaml.safe_load(VARIABLE.sub(lambda found: found[2] or "", text))


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, the rest of its line), comments and line breaks removed."""
    lines = [
        line for line in (DEPLOY / "Dockerfile").read_text().split("\n") if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0].upper(), line.partition(" ")[2].strip()) for line in joined.split("\n")]


def manifests(folder: Path = KUBERNETES) -> list[Path]:
    """Files that hold Kubernetes objects, as against instructions for kustomize."""
    return sorted(path for path in folder.rglob("*.yaml") if path.name != "kustomization.yaml")


def objects_in(path: Path) -> list[Object]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def build(folder: Path) -> list[Object]:
    """What `kubectl kustomize` makes of a folder, for the few keys in use here; a test compares the two where there is a kubectl."""
    rules = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(rules) - {"apiVersion", "kind", "resources", "namespace", "namePrefix", "labels", "patches"}
    assert not unknown, f"{folder}: this reading knows no {unknown}"
    objects: list[Object] = []
    for resource in rules["resources"]:
        path = (folder / resource).resolve()
        objects += build(path) if path.is_dir() else objects_in(path)
    for rule in rules.get("patches", []):
        patch = yaml.safe_load(rule["patch"])
        names = [each["metadata"]["name"] for each in objects if each["kind"] == rule["target"]["kind"]]
        assert names == [patch["metadata"]["name"]], f"{folder}: the patch is for {patch['metadata']['name']}, there is {names}"
        objects = [_merged(each, patch) if each["kind"] == patch["kind"] else each for each in objects]
    for each in objects:
        each["metadata"]["name"] = rules.get("namePrefix", "") + each["metadata"]["name"]
        if "namespace" in rules and each["kind"] != "Namespace":
            each["metadata"]["namespace"] = rules["namespace"]
        for rule in rules.get("labels", []):
            assert rule["includeSelectors"]
            for labels in _label_places(each):
                labels.update(rule["pairs"])
    return objects


def by_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Name -> object, of one kind."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pod(workload: Object) -> Object:
    return workload["spec"]["template"]["spec"]


def ray_groups(cluster: Object) -> list[Object]:
    """The head's group of a RayCluster, and those of the workers."""
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"].get("workerGroupSpecs", [])]


def check_schema(each: Object, version: str) -> None:
    """Raise jsonschema.ValidationError unless the object follows the strict schema of its kind in that version of Kubernetes.

    A RayCluster is none of Kubernetes' kinds: its own fields are checked, and the templates of its pods as pods.
    """
    if each["kind"] != "RayCluster":
        kubernetes_validate.validate(each, version, strict=True)
        return
    jsonschema.validate(each, RAY_SCHEMA)
    for group in ray_groups(each):
        kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **group["template"]}, version, strict=True)


def _merged(old: Any, new: Any) -> Any:
    """A strategic merge: tables key by key, lists of named things name by name, all else replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: _merged(old.get(key), new[key]) if key in new else copy.deepcopy(old[key]) for key in old | new}
    if isinstance(old, list) and isinstance(new, list) and all("name" in each for each in [*old, *new]):
        patches = {each["name"]: each for each in new}
        kept = [_merged(each, patches.pop(each["name"], {})) for each in old]
        return [*kept, *patches.values()]
    return copy.deepcopy(new)


def _label_places(each: Object) -> list[Object]:
    places = [each["metadata"].setdefault("labels", {})]
    if each["kind"] == "NetworkPolicy":
        places.append(each["spec"]["podSelector"]["matchLabels"])
    if each["kind"] == "StatefulSet":
        spec = each["spec"]
        places += [spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]]
        places += [claim["metadata"].setdefault("labels", {}) for claim in spec["volumeClaimTemplates"]]
    return places
