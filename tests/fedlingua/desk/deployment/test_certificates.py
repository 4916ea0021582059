"""Certificates: real handshakes on loopback, with Python's TLS and with gRPC's, and a message for each way to fail."""

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.desk.deployment import certificates
from fedlingua.desk.deployment.certificates import check_certificate, make_certificates

FILES = ["ca.crt", "ca.key", "server.crt", "server.key"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, ["FL.Example.org", "192.0.2.7", "2001:db8::7"])
    return directory


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that gives every connection to `answer`, one after the other, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    if stopping:
                        return
                    answer(connection)

        stopping: list[bool] = []
        thread = Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        try:
            yield port
        finally:
            stopping.append(True)
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def tls_server(directory: Path, certificate: str = "server") -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{certificate}.crt", directory / f"{certificate}.key")

    def answer(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)
        except OSError:
            pass  # a client that refused the certificate

    return answer


def signed(directory: Path, first: datetime, last: datetime) -> None:
    """Put another.crt and another.key there: signed by its authority, for localhost, valid between two moments."""
    authority = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    authority_key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
    server_key = (directory / "server.key").read_bytes()
    key = load_pem_private_key(server_key, None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder(
            authority.subject, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")]), key.public_key(), 7, first, last
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    (directory / "another.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (directory / "another.key").write_bytes(server_key)


# --- Making them ------------------------------------------------------------------------------------------------------------------


def test_four_files_and_only_the_owner_reads_the_keys(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == FILES
    assert {path.name: path.stat().st_mode & 0o777 for path in made.glob("*.key")} == {"ca.key": 0o600, "server.key": 0o600}


def test_hosts_stand_as_names_or_addresses_beside_the_machine_itself(made: Path) -> None:
    certificate = x509.load_pem_x509_certificate((made / "server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    addresses = [ipaddress.ip_address(text) for text in ("192.0.2.7", "2001:db8::7", "127.0.0.1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses


def test_a_certificate_began_yesterday_and_lasts_its_days(made: Path) -> None:
    certificate = x509.load_pem_x509_certificate((made / "server.crt").read_bytes())
    now, minute = datetime.now(UTC), timedelta(minutes=5)
    assert abs(certificate.not_valid_before_utc - (now - timedelta(days=1))) < minute
    assert abs(certificate.not_valid_after_utc - (now + timedelta(days=825))) < minute


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", "fl example", "https://fl.example.org", "fl.example.org:9092", "-a.org", "a..org", "a.org.", "*.example.org"),
        *("192.0.2.300", "[::1]", "fe80::1%eth0", "ä.org", "a" * 64, ".".join(["a" * 60] * 5)),
    ],
)
def test_a_host_that_no_certificate_can_name_is_refused_before_anything_is_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="neither a DNS name nor an IP address"):
        make_certificates(tmp_path / "new", ["fl.example.org", host])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("file", ["server.crt", "server.key"])
def test_the_servers_files_are_not_overwritten(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("old")
    with pytest.raises(ConfigError, match=rf"{file} already exists; to renew it, move"):
        make_certificates(tmp_path, ["a.org"])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(file, "old")]


@pytest.mark.parametrize(("file", "missing"), [("ca.crt", "ca.key"), ("ca.key", "ca.crt")])
def test_half_an_authority_is_refused(made: Path, tmp_path: Path, file: str, missing: str) -> None:
    (tmp_path / file).write_bytes((made / file).read_bytes())
    with pytest.raises(ConfigError, match=rf"{file} is there and {missing} is not"):
        make_certificates(tmp_path, ["a.org"])


def test_an_authority_with_another_ones_key_or_none_is_refused(made: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", ["a.org"])
    (tmp_path / "ca.crt").write_bytes((made / "ca.crt").read_bytes())
    (tmp_path / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match=r"is not the elliptic-curve key of"):
        make_certificates(tmp_path, ["a.org"])
    (tmp_path / "ca.key").write_text("none")
    with pytest.raises(ConfigError, match="cannot be read"):
        make_certificates(tmp_path, ["a.org"])


def test_a_renewed_server_certificate_is_of_the_same_authority_and_does_not_outlive_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "SERVER_DAYS", 100_000)
    for file in ("ca.crt", "ca.key"):
        (tmp_path / file).write_bytes((made / file).read_bytes())
    make_certificates(tmp_path, ["b.org"])
    assert (tmp_path / "ca.crt").read_bytes() == (made / "ca.crt").read_bytes()
    with listening(tls_server(tmp_path)) as port:
        seen = check_certificate(f"localhost:{port}", made / "ca.crt")
    authority = x509.load_pem_x509_certificate((made / "ca.crt").read_bytes())
    assert "for b.org, localhost" in seen
    assert seen.endswith(f"valid until {authority.not_valid_after_utc:%Y-%m-%d}")


# --- Handshakes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_server_with_the_certificate_is_accepted_by_name_and_by_address(made: Path, host: str) -> None:
    with listening(tls_server(made)) as port:
        seen = check_certificate(f"{host}:{port}", made / "ca.crt")
    assert "speaks TLSv1.3; for fl.example.org, localhost, 192.0.2.7, 2001:db8::7, 127.0.0.1; valid until " in seen
    assert seen[-10:] > f"{datetime.now(UTC):%Y-%m-%d}"


@contextmanager
def grpc_server(credentials: grpc.ServerCredentials | None) -> Iterator[int]:
    """The port of a gRPC server whose one method gives back what it gets."""
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
        server.add_registered_method_handlers("test.Echo", {"Say": echo})
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Say": echo}),))
        port = server.add_secure_port("127.0.0.1:0", credentials) if credentials else server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


def test_grpc_accepts_both_ends(made: Path) -> None:
    pair = ((made / "server.key").read_bytes(), (made / "server.crt").read_bytes())
    with grpc_server(grpc.ssl_server_credentials([pair])) as port:
        assert "speaks TLSv1.3" in check_certificate(f"localhost:{port}", made / "ca.crt")
        trusted = grpc.ssl_channel_credentials((made / "ca.crt").read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
            assert channel.unary_unary("/test.Echo/Say")(b"hello", timeout=20) == b"hello"


# --- Each way to fail -------------------------------------------------------------------------------------------------------------


def test_another_authority_is_told_from_ours(made: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, ["a.org"])
    with listening(tls_server(made)) as port, pytest.raises(DeploymentError) as caught:
        check_certificate(f"localhost:{port}", tmp_path / "ca.crt")
    assert "signed by another authority (CN=fedlingua authority" in str(caught.value)
    assert "get ca.crt again" in str(caught.value)


def test_a_host_that_the_certificate_does_not_name_is_refused_with_those_it_names(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["fl.example.org"])
    now = datetime.now(UTC)
    signed(tmp_path, now - timedelta(days=1), now + timedelta(days=1))
    with listening(tls_server(tmp_path, "another")) as port, pytest.raises(DeploymentError) as caught:
        check_certificate(f"127.0.0.1:{port}", tmp_path / "ca.crt")
    assert "does not name '127.0.0.1'; it names localhost. Use one of these" in str(caught.value)


@pytest.mark.parametrize(("days", "state"), [((-9, -2), "has expired"), ((2, 9), "is not yet valid")])
def test_a_certificate_outside_its_dates_is_refused_and_the_clock_is_named(
    tmp_path: Path, days: tuple[int, int], state: str
) -> None:
    make_certificates(tmp_path, ["fl.example.org"])
    now = datetime.now(UTC)
    signed(tmp_path, *(now + timedelta(days=day) for day in days))
    with listening(tls_server(tmp_path, "another")) as port, pytest.raises(DeploymentError, match=state) as caught:
        check_certificate(f"localhost:{port}", tmp_path / "ca.crt")
    assert f"this machine's clock says {now:%Y-%m-%d}" in str(caught.value)


def test_nobody_listening_is_a_refused_connection(made: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(DeploymentError, match=rf"nothing listens on port {port}; start the server"):
        check_certificate(f"127.0.0.1:{port}", made / "ca.crt")


def test_a_server_that_stays_silent_is_a_time_out(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlingua.desk.deployment.certificates.ANSWER_S", 0.2)

    def silent(connection: socket.socket) -> None:
        while connection.recv(1 << 20):
            pass

    with listening(silent) as port, pytest.raises(DeploymentError, match=r"does not answer a TLS greeting within 0.2 s"):
        check_certificate(f"127.0.0.1:{port}", made / "ca.crt")


def test_a_machine_that_does_not_answer_is_a_time_out(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlingua.desk.deployment.certificates.ANSWER_S", 0.2)
    # A full queue of connections drops the next greeting, as a firewall does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), pytest.raises(DeploymentError, match=r"does not answer within 0.2 s"):
            check_certificate(f"127.0.0.1:{port}", made / "ca.crt")


def test_a_name_that_does_not_resolve_is_said(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # asking a real resolver would leave this machine
    with pytest.raises(DeploymentError, match=r"the name 'fl.example.org' cannot be resolved \(Name or service not known\)"):
        check_certificate("fl.example.org:9092", made / "ca.crt")


def banner(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example.org ESMTP\r\n")
    connection.recv(1 << 20)


def web_page(connection: socket.socket) -> None:
    connection.recv(1 << 20)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    connection.recv(1 << 20)


@pytest.mark.parametrize("answer", [banner, web_page, hang_up])
def test_plain_text_is_told_from_tls(made: Path, answer: Callable[[socket.socket], None]) -> None:
    with listening(answer) as port, pytest.raises(DeploymentError, match="speaks no TLS"):
        check_certificate(f"127.0.0.1:{port}", made / "ca.crt")


def test_grpc_in_plain_text_is_told_from_tls(made: Path) -> None:
    with grpc_server(None) as port, pytest.raises(DeploymentError, match="speaks no TLS"):
        check_certificate(f"127.0.0.1:{port}", made / "ca.crt")


def test_a_server_that_wants_an_old_tls_is_said_to_break_off(made: Path) -> None:
    def alert(connection: socket.socket) -> None:
        connection.recv(1 << 20)
        connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")  # fatal alert 70, protocol_version

    with listening(alert) as port, pytest.raises(DeploymentError, match="speaks TLS but ends the handshake"):
        check_certificate(f"127.0.0.1:{port}", made / "ca.crt")


@pytest.mark.parametrize(
    "address", ["", "localhost", ":9092", "localhost:", "localhost:0", "localhost:70000", "::1", "https://a:1"]
)
def test_an_address_without_host_or_port_is_refused(made: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="wanted host:port"):
        check_certificate(address, made / "ca.crt")


@pytest.mark.parametrize("content", [None, "", "ca", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_an_authority_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "ca.crt").write_text(content)
    with pytest.raises(ConfigError, match=r"no certificate can be read there .* wanted the server's ca.crt"):
        check_certificate("localhost:1", tmp_path / "ca.crt")
