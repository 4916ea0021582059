"""The way to a server behind a proxy: the check goes as gRPC goes, and as httpx goes, on which newer Flower stands."""

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from fedlingua.common.errors import DeploymentError
from fedlingua.desk.deployment import proxies
from fedlingua.desk.deployment.certificates import check_certificate, check_reachable, make_certificates
from fedlingua.desk.deployment.proxies import way_to
from fedlingua.desk.processes import flower_environment, free_port
from tests.fedlingua.desk.deployment.test_certificates import listening, tls_server
from tests.http_proxy import ALL_VARIABLES, HttpProxy, http_proxy

NAME = "fl.example.org:9092"


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ALL_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, ["fl.example.org"])
    return directory


@pytest.fixture
def proxy(made: Path) -> Iterator[HttpProxy]:
    """To a server with TLS, whose name only the proxy can resolve."""
    with listening(tls_server(made)) as port, http_proxy({NAME: f"127.0.0.1:{port}"}) as serving:
        yield serving


def test_a_server_behind_the_proxy_is_checked_through_it(made: Path, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy.url.replace("//", "//anna:s%40crt@"))
    seen = check_certificate(NAME, made / "ca.crt")
    assert seen.startswith(f"{NAME} through the proxy {proxy.url[7:]} (https_proxy) speaks TLSv1.3; for fl.example.org")
    assert check_reachable(NAME) == f"reachable through the proxy {proxy.url[7:]} (https_proxy)"
    assert (proxy.asked, set(proxy.known)) == ([NAME, NAME], {"Basic YW5uYTpzQGNydA=="})


def test_a_certificate_that_is_refused_through_the_proxy_is_told(
    proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_certificates(tmp_path, ["a.org"])
    monkeypatch.setenv("https_proxy", proxy.url)
    with pytest.raises(DeploymentError, match="signed by another authority"):
        check_certificate(NAME, tmp_path / "ca.crt")
    assert proxy.asked == [NAME, NAME]


def test_a_host_that_no_proxy_names_is_reached_directly(made: Path, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy.url)
    monkeypatch.setenv("no_proxy", "example.net, 127.0.0.0/8")
    with socket.create_server(("127.0.0.2", 0)) as server:
        seen = check_reachable(f"127.0.0.2:{server.getsockname()[1]}")
    assert (seen, proxy.asked) == ("reachable (directly, as no_proxy says)", [])


def test_a_proxy_that_is_dead_or_refuses_is_told_with_its_variable(
    made: Path, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = free_port()
    monkeypatch.setenv("https_proxy", f"http://anna:secret@127.0.0.1:{dead}")
    monkeypatch.setenv("no_grpc_proxy", "example.net")
    with pytest.raises(DeploymentError) as caught:
        check_certificate(NAME, made / "ca.crt")
    assert f"not reachable: {NAME} through the proxy 127.0.0.1:{dead} (https_proxy): " in str(caught.value)
    assert "Connection refused; correct https_proxy, " in str(caught.value)
    assert "or name fl.example.org in no_grpc_proxy if it can" in str(caught.value)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("grpc_proxy", proxy.url)
    with pytest.raises(DeploymentError, match=r"\(grpc_proxy\): Tunnel connection failed: 403 Forbidden; correct grpc_proxy, "):
        check_reachable("other.example.org:9092")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"HTTPS_PROXY": "http://127.0.0.1:1"}, " (directly: gRPC reads https_proxy, not HTTPS_PROXY) refuses the connection"),
        ({"https_proxy": "127.0.0.1:1"}, " (directly: https_proxy is not http://HOST:PORT, and so not used) refuses"),
    ],
)
def test_a_variable_that_grpc_does_not_use_is_told(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DeploymentError) as caught:
        check_reachable(f"127.0.0.2:{free_port()}")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "variables",
    [
        {"https_proxy": "PROXY"},
        {"http_proxy": "PROXY"},
        {"grpc_proxy": "PROXY", "https_proxy": "http://127.0.0.1:1"},
        {"HTTPS_PROXY": "PROXY"},
        {"https_proxy": "", "http_proxy": "PROXY"},
        {"https_proxy": "https"},
        {"https_proxy": "bare"},
        {"https_proxy": "PROXY", "no_proxy": "127.0.0.2"},
        {"https_proxy": "PROXY", "no_proxy": "127.0.0.3, .0.2"},
        {"https_proxy": "PROXY", "no_proxy": "*"},
        {"https_proxy": "PROXY", "no_proxy": "127.0.0.0/30"},
        {"https_proxy": "PROXY", "no_proxy": "127.0.0.128/25"},
        {"https_proxy": "PROXY", "NO_PROXY": "127.0.0.2"},
        {"https_proxy": "PROXY", "no_proxy": "127.0.0.2", "no_grpc_proxy": "127.0.0.3"},
    ],
    ids=str,
)
def test_the_check_goes_the_way_of_grpc(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with http_proxy({}) as proxy, socket.create_server(("127.0.0.2", 0)) as server:
        values = {"PROXY": proxy.url, "https": proxy.url.replace("http:", "https:"), "bare": proxy.url[7:]}
        for name, value in variables.items():
            monkeypatch.setenv(name, values.get(value, value))
        for name in ALL_VARIABLES:  # as `site start` starts the SuperNode
            if name in (given := flower_environment(tmp_path)):
                monkeypatch.setenv(name, given[name])
        with grpc.insecure_channel(f"127.0.0.2:{server.getsockname()[1]}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            channel.unary_unary("/test.Echo/Say").future(b"hello")
            server.settimeout(0.05)
            direct = False
            while not direct and not proxy.asked:
                try:
                    server.accept()[0].close()
                    direct = True
                except TimeoutError:
                    continue
        assert bool(way_to("127.0.0.2").variable) == (not direct)


@pytest.mark.parametrize(
    "variables",
    [
        {"https_proxy": "PROXY"},
        {"HTTPS_PROXY": "PROXY"},
        {"all_proxy": "PROXY"},
        {"http_proxy": "PROXY"},
        {"https_proxy": "PROXY", "no_proxy": "127.0.0.2"},
        {"https_proxy": "PROXY", "NO_PROXY": "127.0.0.2"},
    ],
    ids=str,
)
def test_over_http_the_check_goes_the_way_of_httpx(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "over_grpc", lambda: False)
    with http_proxy({}) as proxy:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.replace("PROXY", proxy.url))
        with httpx.Client(verify=False) as client, pytest.raises(httpx.TransportError):  # refused by the proxy, or nobody listens
            client.get(f"https://127.0.0.2:{free_port()}")
        assert bool(way_to("127.0.0.2").variable) == bool(proxy.asked)


def test_flowers_programs_speak_to_each_other_on_loopback_without_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("no_grpc_proxy", "example.net")
    environment = flower_environment(tmp_path)
    assert environment["no_proxy"] == environment["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert environment["no_grpc_proxy"] == "example.net,127.0.0.1,localhost"
