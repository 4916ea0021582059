"""TLS for a federation of one's own: make an authority and a server certificate signed by it, and check a server's certificate.

They are made with `cryptography` itself. trustme, which would be shorter, is for tests: its authorities are valid from 2000 to 3000,
its server certificates may also sign code and identify clients, and it accepts networks and e-mail addresses as hosts. No package on
the index explains why a site would refuse a server's certificate, and what to do.
"""

import contextlib
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.common.files import replace_text
from fedlingua.consent.site_file import host_and_port
from fedlingua.desk.deployment.proxies import way_to

Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
ALWAYS = ("localhost", "127.0.0.1")
"""Hosts that every server certificate names, so that the server can also be reached from its own machine."""
SERVER_DAYS, AUTHORITY_DAYS = 825, 3650
"""The authority's file goes to every site by hand, so it outlives the server certificates that it signs."""
CLOCK_SKEW = timedelta(days=1)
"""How far in the past a certificate begins, because some sites' clocks are set by hand, perhaps to the wrong time zone."""

ANSWER_S = 20.0
"""Time for the other machine, which may be busy, to answer; a firewall that drops packets never does."""
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE | re.ASCII)
OUTSIDE_ITS_DATES = {9, 10}
OF_ANOTHER_AUTHORITY = {2, 7, 18, 19, 20, 21}
OF_ANOTHER_HOST = {62, 64}
"""OpenSSL's X509_V_ERR_* numbers for a host name (62) or an IP address (64) that does not match."""
UNREACHABLE: dict[type[OSError], str] = {
    socket.gaierror: ": the name {host!r} cannot be resolved ({error.strerror}); check its spelling and this machine's DNS, "
    "or give the server's IP address where its certificate names it",
    ConnectionRefusedError: " refuses the connection: the machine answers, and nothing listens on port {port}; start the "
    "server, or check the port",
    TimeoutError: " does not answer within {timeout_s:g} s; check that the machine runs and that no firewall drops port {port}",
    OSError: " cannot be reached ({error}); check this machine's network and the address",
}
"""Reasons why a connection fails, of which the first that fits counts, and what to do."""


# --- Making them ---


def make_certificates(directory: Path, hosts: Sequence[str]) -> None:
    """Write ca.crt, ca.key, server.crt and server.key as PEM; the server's certificate is for these hosts, localhost and 127.0.0.1.

    If there is an authority (ca.crt and ca.key) already, it signs the new server certificate, so sites keep their ca.crt. To renew a
    certificate, move server.crt and server.key away and start the server. No server certificate outlives its authority.

    Raises:
        ConfigError: a host is neither a DNS name nor an IP address, the server's files exist, or only half an authority does.
    """
    names = subject_alternative_names([*hosts, *ALWAYS])
    for file in (directory / "server.crt", directory / "server.key"):
        if file.exists():
            raise ConfigError(
                f"{file} already exists; to renew it, move server.crt and server.key away and start the server (ca.crt stays, the "
                "sites need nothing new), or give another directory"
            )
    authority = _read_authority(directory) or _make_authority(directory)
    # P-256: the curve that every TLS stack takes for servers, gRPC's BoringSSL and uvicorn's OpenSSL among them.
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(datetime.now(UTC) + timedelta(days=SERVER_DAYS), authority[0].not_valid_after_utc)
    _write_pair(directory / "server", _certificate("fedlingua server", key, until, authority, names), key)


def subject_alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Return hosts as a certificate names them, each once, DNS names in lower case; raise ConfigError for an invalid host."""
    return [_general_name(host) for host in dict.fromkeys(host.lower() for host in hosts)]


def _general_name(host: str) -> x509.GeneralName:
    if "%" not in host:  # a scope ("%eth0") names an interface of one machine and has no place in a certificate
        with contextlib.suppress(ValueError):
            return x509.IPAddress(ipaddress.ip_address(host))
    labels = host.split(".")
    # A last label of digits alone is a mistyped IP address.
    if len(host) <= 253 and all(map(LABEL.fullmatch, labels)) and not labels[-1].isdigit():
        return x509.DNSName(host)
    raise ConfigError(
        f"host {host!r} is neither a DNS name nor an IP address; wanted 'fl.example.org', '192.0.2.7' or '2001:db8::7', "
        "without scheme and port; a name in other letters than a-z in its 'xn--' form"
    )


def _read_authority(directory: Path) -> Authority | None:
    """Return the authority in `directory`; None if there is none."""
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    for there, missing in ((certificate_file, key_file), (key_file, certificate_file)):
        if there.exists() and not missing.exists():
            raise ConfigError(
                f"{there} is there and {missing.name} is not; put {missing.name} back, or give another directory for a new "
                "authority (every site then needs its new ca.crt)"
            )
    if not key_file.exists():
        return None
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = load_pem_private_key(key_file.read_bytes(), password=None)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"{directory}: ca.crt and ca.key cannot be read ({error}); wanted PEM, the key without password"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(
            f"{key_file} is not the elliptic-curve key of {certificate_file}; put the right one back, or give another directory"
        )
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise ConfigError(
            f"{certificate_file} has expired ({_day(certificate.not_valid_after_utc)}); give another directory for a new authority "
            "(every site then needs its new ca.crt)"
        )
    return certificate, key


def _make_authority(directory: Path) -> Authority:
    key = ec.generate_private_key(ec.SECP384R1())
    # The number distinguishes two authorities of this project, for readers of messages and for OpenSSL.
    name = f"fedlingua authority {x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest[:4].hex()}"
    certificate = _certificate(name, key, datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS))
    _write_pair(directory / "ca", certificate, key)
    return certificate, key


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    until: datetime,
    signer: Authority | None = None,
    hosts: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    """Return the certificate of a server for these hosts, signed by an authority; without `signer` an authority's, signed by itself."""
    subject, public = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key()
    authority, issuer, issuer_key = (False, signer[0].subject, signer[1]) if signer else (True, subject, key)
    builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    builder = builder.not_valid_before(datetime.now(UTC) - CLOCK_SKEW).not_valid_after(until)
    # A server's key signs handshakes, an authority's certificates and their revocation.
    usage = x509.KeyUsage(not authority, False, False, False, False, authority, authority, False, False)
    for critical in (x509.BasicConstraints(ca=authority, path_length=0 if authority else None), usage):
        builder = builder.add_extension(critical, critical=True)
    extensions: list[x509.ExtensionType] = [x509.SubjectKeyIdentifier.from_public_key(public)]
    if signer:
        extensions += [x509.SubjectAlternativeName(hosts), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])]
        extensions.append(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA384())


def _write_pair(file: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    replace_text(file.with_suffix(".key"), private.decode(), 0o600)
    file.with_suffix(".crt").write_bytes(certificate.public_bytes(Encoding.PEM))


# --- Looking at them ---


def check_certificate(address: str, authority: Path) -> str:
    """Connect to "host:port" by TLS, as a site would, and check certificate and host name against the authority's file.

    Returns:
        The negotiated TLS version, the hosts that the certificate names, and its last day in UTC.

    Raises:
        ConfigError: the address lacks host or port, or the file has no authority.
        DeploymentError: no server, no TLS, or a certificate that a site would refuse; says which, and what to do.
    """
    host, port = host_and_port(address, "address =")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name
    context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC servers require the first, HTTP servers know both
    try:
        content = authority.read_bytes()
        authorities = x509.load_pem_x509_certificates(content)
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"authority = {authority}: no certificate can be read there ({error}); wanted the server's ca.crt"
        ) from error
    try:
        presented, tls_version = _handshake(host, port, context)
    except ssl.SSLCertVerificationError as error:
        # OpenSSL drops a refused certificate; a second connection, which trusts anybody and sends nothing, fetches it for the message.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        leaf = x509.load_der_x509_certificate(_handshake(host, port, context)[0])
        raise DeploymentError(f"{address}: {_refusal(host, leaf, authority, authorities, error)}") from error
    leaf = x509.load_der_x509_certificate(presented)
    hosts, last = ", ".join(_hosts(leaf)), leaf.not_valid_after_utc
    return f"{address}{way_to(host).words} speaks {tls_version}; for {hosts}; valid until {last:%Y-%m-%d}"


def check_dates(file: Path) -> None:
    """Raise DeploymentError if a server may not present its certificate today, with what to do; also if the file holds none."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise DeploymentError(f"{file}: no certificate can be read there ({error}); wanted the server's own, as PEM") from error
    if state := _outside_its_dates(certificate):
        raise DeploymentError(
            f"{file}: the certificate {state}; set the clock if it is wrong, else move server.crt and server.key away and start the "
            "server again: the same authority signs a new one, and the sites change nothing"
        )


def check_reachable(address: str) -> str:
    """Connect to "host:port" for a moment."""
    host, port = host_and_port(address, "address =")
    with connect(host, port):
        return f"reachable{way_to(host).words}"


def connect(host: str, port: int) -> socket.socket:
    """Return a connection by the SuperNode's way; raise DeploymentError with the reason if there is none."""
    way = way_to(host)
    try:
        return way.connect(host, port, ANSWER_S)
    except OSError as error:
        if way.variable:
            raise DeploymentError(
                f"not reachable: {host}:{port}{way.words}: {error}; correct {way.variable}, have the proxy allow CONNECT to this address, "
                f"or name {host} in {way.sparing} if it can be reached without the proxy"
            ) from error
        reason = next(words for kind, words in UNREACHABLE.items() if isinstance(error, kind))
        reason = reason.format(host=host, port=port, timeout_s=ANSWER_S, error=error)
        raise DeploymentError(f"not reachable: {host}:{port}{way.words}{reason}") from error


def _handshake(host: str, port: int, context: ssl.SSLContext) -> tuple[bytes, str]:
    """Return the server's certificate and the TLS version; send nothing beyond the handshake."""
    where = f"{host}:{port}"
    with connect(host, port) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=host) as secured:
                presented, version = secured.getpeercert(binary_form=True), secured.version()
        except ssl.SSLCertVerificationError:
            raise
        except TimeoutError as error:
            raise DeploymentError(
                f"{where} accepts the connection but does not answer a TLS greeting within {ANSWER_S:g} s; wanted a server with TLS: "
                "start it with its certificate, or check that the port is the right one"
            ) from error
        except OSError as error:
            # An alert comes from TLS itself; any other failure at this point means that the server does not speak TLS.
            reason = getattr(error, "reason", None) or str(error)
            if "ALERT" in reason or "PROTOCOL_VERSION" in reason or "NO_SHARED" in reason:
                raise DeploymentError(
                    f"{where} speaks TLS but ends the handshake ({reason}); wanted TLS 1.2 or 1.3 without a client certificate"
                ) from error
            raise DeploymentError(
                f"{where} speaks no TLS (plain text, or another protocol: {reason}); start the server with its certificate and key, or "
                "check that the port is the right one"
            ) from error
    assert presented is not None  # a TLS server always presents one
    assert version is not None
    return presented, version


def _refusal(
    host: str, leaf: x509.Certificate, file: Path, authorities: Sequence[x509.Certificate], error: ssl.SSLCertVerificationError
) -> str:
    """Return why OpenSSL did not accept a certificate, and what to do."""
    code = error.verify_code
    if code in OF_ANOTHER_HOST:
        return (
            f"the certificate does not name {host!r}; it names {', '.join(_hosts(leaf)) or 'no host'}. Use one of these "
            f"names as the address, or make the server a certificate that names {host!r}"
        )
    if code in OF_ANOTHER_AUTHORITY:
        known = ", ".join(certificate.subject.rfc4514_string() for certificate in authorities)
        return (
            f"the certificate is signed by another authority ({leaf.issuer.rfc4514_string()}) than the one in {file} "
            f"({known}); get ca.crt again from those who run the server, by a channel that you trust. If they changed "
            "nothing, somebody may be intercepting the connection"
        )
    for certificate in (leaf, *(authority for authority in authorities if authority.subject == leaf.issuer)):
        if code in OUTSIDE_ITS_DATES and (state := _outside_its_dates(certificate)):
            return (
                f"the certificate of {certificate.subject.rfc4514_string()} {state}; set the clock if it is wrong, else have the "
                "server's certificate renewed"
            )
    return f"the certificate is refused ({error.verify_message}); make the server a new one"


def _outside_its_dates(certificate: x509.Certificate) -> str:
    """Return how today lies outside a certificate's dates, with both and the clock; "" if it does not."""
    first, now, last = certificate.not_valid_before_utc, datetime.now(UTC), certificate.not_valid_after_utc
    if first <= now <= last:
        return ""
    state = "has expired" if now > last else "is not yet valid"
    return f"{state}: valid from {_day(first)} to {_day(last)}, and this machine's clock says {_day(now)}"


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
