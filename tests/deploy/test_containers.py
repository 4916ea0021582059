"""The image and compose.yaml: they follow their schemas, agree with each other, and give no service more than it needs."""

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import jsonschema
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema

from fedlingua.common.files import bundled_files
from fedlingua.desk.cli.app import app
from tests.commands import leaf_commands
from tests.deploy.deployment import DEPLOY, ROOT, VARIABLE, compose, dockerfile

SITES = ("hospital", "court", "school")
SERVICES = compose()["services"]
IMAGE = dockerfile()
FOLDERS_IN_USE = [DEPLOY / service["volumes"][0]["source"] for service in SERVICES.values()]  # somebody's own, with keys
FILES = sorted(
    path
    for path in [*(path for path in DEPLOY.rglob("*") if path.parent.name != "__pycache__"), ROOT / ".dockerignore"]
    if path.is_file() and not any(path.is_relative_to(folder) for folder in FOLDERS_IN_USE)
)
SECRET_NAME = re.compile(r"pass(word|wd|phrase)|token|secret|credential|_key\b", re.IGNORECASE)
FOLDERS = {"superlink": "/server", **dict.fromkeys(SITES, "/site")}


# --- The image ---


def test_hadolint_has_nothing_to_say_about_the_dockerfile():
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_base_images_are_pinned_by_digest_to_a_python_that_the_project_runs_on():
    built, runs = [rest.split()[0] for instruction, rest in IMAGE if instruction == "FROM"]
    assert built == runs
    assert re.fullmatch(r"python:3\.11-slim@sha256:[0-9a-f]{64}", built)
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].startswith(">=3.11")


def test_the_image_runs_fedlingua_as_a_numbered_user_that_is_not_root():
    last = dict(IMAGE[[instruction for instruction, _ in IMAGE].index("ENTRYPOINT") - 1 :])
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", last["USER"])  # numbers, because Kubernetes can tell from nothing else
    assert last["ENTRYPOINT"] == '["fedlingua"]'
    assert "HEALTHCHECK" not in last


def test_every_copied_file_is_in_the_tree_and_let_through_to_the_build():
    ignore = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and not line.startswith("#")]
    assert ignore[0] == "*"
    let_through = {line[1:] for line in ignore if line.startswith("!")}
    copied = {s for instruction, rest in IMAGE if instruction == "COPY" and "--from" not in rest for s in rest.split()[:-1]}
    assert "." in copied
    assert all(list(ROOT.glob(source)) for source in let_through | (copied - {"."}))
    assert copied - {".", "README.md"} <= let_through
    assert "ADD" not in dict(IMAGE)


def test_the_image_holds_all_that_a_bundle_is_made_of():
    """The bundle of the image has the hash of a checkout's."""
    ignore = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and not line.startswith("#")]
    let_through = [line[1:] for line in ignore if line.startswith("!")]
    tops = {name.split("/")[0] for name in bundled_files(ROOT)}
    assert [top for top in sorted(tops) if not any(fnmatch(top, pattern) for pattern in let_through)] == []
    git = (ROOT / ".gitignore").read_text().split("\n")
    shut_out = [line for line in ignore[1:] if not line.startswith("!") and line != "**/__pycache__"]
    assert shut_out
    assert all(f"/{folder}/" in git for folder in shut_out)


def test_only_files_with_known_hashes_are_installed():
    runs = [rest for instruction, rest in IMAGE if instruction == "RUN"]
    commands = [each for rest in runs for each in re.findall(r"pip install .*?(?= &&|;|$)", rest)]
    assert len(commands) == 4
    assert all("--require-hashes" in each for each in commands[:-1])
    assert commands[-1] == "pip install --no-deps --no-build-isolation -e ."  # fetches nothing


def test_torch_comes_from_where_the_makefile_takes_it():
    index = re.search(r"^TORCH_INDEX \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert ("ARG", f"TORCH_INDEX={index}") in IMAGE
    assert {service["build"]["args"]["TORCH_INDEX"] for service in SERVICES.values()} == {index}


# --- Compose ---


def test_compose_follows_the_compose_specification():
    schema = jsonschema.Draft202012Validator(get_builtin_schema("vendor.compose-spec"))
    assert [error.message for error in schema.iter_errors(compose())] == []
    wrong = compose((DEPLOY / "compose.yaml").read_text().replace("cap_drop", "drop_caps"))
    assert list(schema.iter_errors(wrong))


def test_every_variable_has_a_default():
    for path in FILES:
        without = [found[1] for found in VARIABLE.finditer(path.read_text()) if not found[2]]
        assert not without, f"{path.name}: {without}"


def test_there_is_one_superlink_and_three_supernodes():
    assert list(SERVICES) == ["superlink", *SITES]
    assert SERVICES["superlink"]["command"] == ["server", "start", "/server/server.toml"]
    assert {name for name, service in SERVICES.items() if service["command"] == ["site", "start", "/site/site.toml"]} == set(
        SITES
    )


def test_the_commands_are_fedlinguas():
    commands = leaf_commands(app)
    for service in SERVICES.values():
        group, command, _ = service["command"]
        assert f"{group} {command}" in commands


def test_all_services_run_the_one_image_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {service["image"] for service in SERVICES.values()} == {f"fedlingua:{version}"}
    assert {service["build"]["dockerfile"] for service in SERVICES.values()} == {"deploy/Dockerfile"}
    assert {(DEPLOY / service["build"]["context"]).resolve() for service in SERVICES.values()} == {ROOT.resolve()}


def test_each_service_has_one_folder_of_its_own_that_its_command_names():
    sources = set()
    for name, service in SERVICES.items():
        (volume,) = service["volumes"]
        assert (volume["type"], volume["target"]) == ("bind", FOLDERS[name])
        assert service["command"][2].startswith(volume["target"] + "/")
        assert service["environment"]["XDG_CACHE_HOME"].startswith(volume["target"] + "/")
        # Docker would make a missing folder, as root, and the service would fail with words about permissions.
        assert volume["bind"]["create_host_path"] is False
        sources.add(volume["source"])
    assert len(sources) == len(SERVICES)


def test_no_default_folder_is_in_git_or_in_a_bundle():
    ignored = (ROOT / ".gitignore").read_text().split("\n")
    for service in SERVICES.values():
        assert f"/deploy/{Path(service['volumes'][0]['source']).name}/" in ignored


def test_only_the_superlink_publishes_a_port():
    assert {name: service.get("ports") for name, service in SERVICES.items()} == {
        "superlink": ["9092:9092"],
        **dict.fromkeys(SITES, None),
    }
    assert not any(key in service for service in SERVICES.values() for key in ("expose", "network_mode", "extra_hosts"))
    assert "('127.0.0.1', 9092)" in SERVICES["superlink"]["healthcheck"]["test"][-1]


def test_a_site_shares_a_network_with_the_superlink_and_with_nobody_else():
    networks = {name: set(service["networks"]) for name, service in SERVICES.items()}
    assert networks == {"superlink": set(SITES), **{site: {site} for site in SITES}}
    assert set(compose()["networks"]) == set(SITES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_no_more_than_it_has_to(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert service["restart"] == "unless-stopped"
    assert service["mem_limit"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "secrets", "env_file"} & set(service)
    assert service["user"] == dict(IMAGE)["USER"]


# --- Everything under deploy/ ---


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_holds_a_secret(path):
    text = path.read_text()
    assert path.suffix not in (".pem", ".key", ".crt", ".pub", ".env")
    assert "BEGIN " not in text
    assert not re.findall(r"(?<!@sha256:)\b[A-Za-z0-9+/=]{40,}", text)  # what a key looks like in base64 or hex


def test_no_variable_of_the_image_or_of_a_service_is_named_like_a_secret():
    words = [rest for instruction, rest in IMAGE if instruction in ("ARG", "ENV")]
    words += [name for service in SERVICES.values() for name in service["environment"]]
    words += [found[1] for found in VARIABLE.finditer((DEPLOY / "compose.yaml").read_text())]
    assert not [each for each in words if SECRET_NAME.search(each)]
