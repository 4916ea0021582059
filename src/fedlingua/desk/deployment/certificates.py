"""TLS for a federation of one's own: an authority, a server certificate signed by it, and a look at what a server presents."""

import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.consent.keys import write_private

ALWAYS = ("localhost", "127.0.0.1")
"""Hosts that every server certificate names, so that the server's own machine reaches it too."""
AUTHORITY_DAYS = 3650
"""The authority's file goes to every site by hand, so it outlives the server certificates that it signs."""
CLOCK_SKEW = timedelta(days=1)
"""How far in the past a certificate begins: sites' clocks are set by hand, too, and some of them to the wrong time zone."""

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE | re.ASCII)
OUTSIDE_ITS_DATES = {9, 10}
OF_ANOTHER_AUTHORITY = {2, 7, 18, 19, 20, 21}
OF_ANOTHER_HOST = {62, 64}
"""OpenSSL's X509_V_ERR_* numbers; a name that differs (62) or an IP address that does (64)."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


# --- Making them ------------------------------------------------------------------------------------------------------------------


def make_certificates(directory: Path, hosts: Sequence[str], days: int = 825) -> None:
    """Write ca.crt, ca.key, server.crt and server.key, all PEM: the server's for these hosts, localhost and 127.0.0.1.

    An authority (ca.crt and ca.key) that is there already signs the new server certificate, so sites keep their ca.crt; to renew,
    move server.crt and server.key away first. `days` is the server certificate's, cut to the authority's last day.

    Raises:
        ConfigError: a host that is neither a DNS name nor an IP address, no days, the server's files are there, or half an authority.
    """
    names = subject_alternative_names([*hosts, *ALWAYS])
    if days < 1:
        raise ConfigError(f"days = {days}; a certificate is valid for 1 day or more")
    for file in (directory / "server.crt", directory / "server.key"):
        if file.exists():
            raise ConfigError(
                f"{file} is there already; to renew it, move server.crt and server.key away and run this again (ca.crt stays, "
                "the sites need nothing new), or give another directory"
            )
    directory.mkdir(parents=True, exist_ok=True)
    certificate, key = _read_authority(directory) or _make_authority(directory, max(days, AUTHORITY_DAYS))
    _make_server_certificate(directory, names, days, certificate, key)


def subject_alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Hosts as a certificate names them, each once, DNS names in lower case.

    Raises:
        ConfigError: a host that is neither a DNS name nor an IP address.
    """
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(host.lower() for host in hosts):
        address = _address(host)
        if address is None and not _is_dns_name(host):
            raise ConfigError(
                f"host {host!r} is neither a DNS name nor an IP address; wanted 'fl.example.org', '192.0.2.7' or '2001:db8::7', "
                "without scheme and port; a name in other letters than a-z in its 'xn--' form"
            )
        names.append(x509.DNSName(host) if address is None else x509.IPAddress(address))
    return names


def _address(host: str) -> Address | None:
    try:
        # A scope ("%eth0") names an interface of one machine and has no place in a certificate.
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_dns_name(host: str) -> bool:
    labels = host.split(".")
    # A last label of digits alone is a mistyped IP address.
    return len(host) <= 253 and all(LABEL.fullmatch(label) for label in labels) and not labels[-1].isdigit()


def _read_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """The authority in `directory`; None when there is none."""
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    there = [file for file in (certificate_file, key_file) if file.exists()]
    if not there:
        return None
    if len(there) == 1:
        missing = key_file if there[0] == certificate_file else certificate_file
        raise ConfigError(
            f"{there[0]} is there and {missing.name} is not; put {missing.name} back, or give another directory for a new authority "
            "(every site then needs its new ca.crt)"
        )
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


def _make_authority(directory: Path, days: int) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP384R1())
    # The number tells two authorities of this project apart, for readers of messages and for OpenSSL.
    name = _name(f"fedlingua authority {x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest[:4].hex()}")
    certificate = (
        _begin(name, name, key.public_key(), datetime.now(UTC) + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    _write_pair(directory / "ca.crt", certificate, directory / "ca.key", key)
    return certificate, key


def _make_server_certificate(
    directory: Path,
    names: Sequence[x509.GeneralName],
    days: int,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> None:
    # P-256: the curve that every TLS stack takes for servers, gRPC's BoringSSL and uvicorn's OpenSSL among them.
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = authority_key.public_key()
    until = min(datetime.now(UTC) + timedelta(days=days), authority.not_valid_after_utc)
    certificate = (
        _begin(_name("fedlingua server"), authority.subject, key.public_key(), until)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    _write_pair(directory / "server.crt", certificate, directory / "server.key", key)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime) -> x509.CertificateBuilder:
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer_name=issuer, subject_name=subject, public_key=key, serial_number=serial)
    return builder.not_valid_before(datetime.now(UTC) - CLOCK_SKEW).not_valid_after(until)


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(file: Path, certificate: x509.Certificate, key_file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    write_private(key_file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    file.write_bytes(certificate.public_bytes(Encoding.PEM))


# --- Looking at them --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CertificateFacts:
    """What a server presented, and the TLS version agreed on ("TLSv1.3"); times in UTC."""

    subject: str
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    tls_version: str


def check_certificate(address: str, authority: Path, timeout_s: float = 5.0, now: datetime | None = None) -> CertificateFacts:
    """Connect to "host:port" by TLS, as a site would, and check certificate and host name against the authority's file.

    `now` stands in for this machine's clock, to ask whether a certificate will still be valid then.

    Raises:
        ConfigError: an address without host or port, or no authority in the file.
        DeploymentError: no server, no TLS, or a certificate that a site would refuse; says which, and what to do.
    """
    host, port = _host_and_port(address)
    authorities, context = _trusting(authority)
    moment = now or datetime.now(UTC)
    try:
        leaf, tls_version = _handshake(host, port, context, timeout_s)
    except ssl.SSLCertVerificationError as error:
        # OpenSSL drops a refused certificate; a second connection, that trusts nobody and sends nothing, fetches it for the message.
        leaf, _ = _handshake(host, port, _trusting_anybody(), timeout_s)
        raise DeploymentError(_refusal(address, host, leaf, authority, authorities, error, moment)) from error
    if fault := _date_fault(leaf, authorities, moment):
        raise DeploymentError(f"{address}: {fault}")
    return CertificateFacts(
        leaf.subject.rfc4514_string(), _hosts(leaf), leaf.not_valid_before_utc, leaf.not_valid_after_utc, tls_version
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # An IPv6 address without brackets cannot be told from one with a port.
    well_formed = (_address(bare) is not None) if ":" in host else _is_dns_name(host) or _address(host) is not None
    if not well_formed or (":" in host and bare == host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"address = {address!r}; wanted host:port, such as 'fl.example.org:9092' or '[2001:db8::7]:9092'")
    return bare, int(port)


def _trusting(authority: Path) -> tuple[list[x509.Certificate], ssl.SSLContext]:
    """The authorities of a PEM file, and a context that trusts them and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name unless told otherwise
    try:
        content = authority.read_bytes()
        authorities = x509.load_pem_x509_certificates(content)
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"authority = {authority}: no certificate can be read there ({error}); wanted the server's ca.crt"
        ) from error
    return authorities, context


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _handshake(host: str, port: int, context: ssl.SSLContext, timeout_s: float) -> tuple[x509.Certificate, str]:
    """The server's certificate and the TLS version; nothing is sent beyond the handshake."""
    context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC's servers want the first, HTTP servers know either
    where = f"{host}:{port}"
    with _connect(host, port, timeout_s) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=host) as secured:
                presented, version = secured.getpeercert(binary_form=True), secured.version()
        except ssl.SSLCertVerificationError:
            raise
        except TimeoutError as error:
            raise DeploymentError(
                f"{where} takes the connection and says nothing to a TLS greeting within {timeout_s:g} s; wanted a server with TLS: "
                "start it with its certificate, or check that the port is the right one"
            ) from error
        except (ssl.SSLError, OSError) as error:
            raise DeploymentError(_no_tls(where, error)) from error
    assert presented is not None  # a TLS server always presents one
    assert version is not None
    return x509.load_der_x509_certificate(presented), version


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    where = f"{host}:{port}"
    try:
        return socket.create_connection((host, port), timeout_s)
    except socket.gaierror as error:
        raise DeploymentError(
            f"{where}: the name {host!r} cannot be resolved ({error.strerror}); check its spelling and this machine's DNS, or give "
            "the server's IP address where its certificate names it"
        ) from error
    except ConnectionRefusedError as error:
        raise DeploymentError(
            f"{where} refuses the connection: the machine answers, and nothing listens on port {port}; start the server, or check "
            "the port"
        ) from error
    except TimeoutError as error:
        raise DeploymentError(
            f"{where} does not answer within {timeout_s:g} s; check that the machine runs and that no firewall drops port {port}"
        ) from error
    except OSError as error:
        raise DeploymentError(f"{where} cannot be reached ({error}); check this machine's network and the address") from error


def _no_tls(where: str, error: OSError) -> str:
    """What went wrong in a handshake that came to no certificate."""
    # An alert is TLS itself speaking; any other failure at this point is a server that took the greeting for something else.
    reason = getattr(error, "reason", None) or str(error)
    if "ALERT" in reason or "PROTOCOL_VERSION" in reason or "NO_SHARED" in reason:
        return f"{where} speaks TLS and breaks off the handshake ({reason}); wanted TLS 1.2 or 1.3 without a client certificate"
    return (
        f"{where} speaks no TLS (plain text, or another protocol: {reason}); start the server with its certificate and key, or "
        "check that the port is the right one"
    )


def _refusal(
    address: str,
    host: str,
    leaf: x509.Certificate,
    file: Path,
    authorities: Sequence[x509.Certificate],
    error: ssl.SSLCertVerificationError,
    moment: datetime,
) -> str:
    """Why OpenSSL did not accept a certificate, in words that say what to do."""
    code = error.verify_code
    if code in OF_ANOTHER_HOST:
        return (
            f"{address}: the certificate does not name {host!r}; it names {', '.join(_hosts(leaf)) or 'no host'}. Use one of these "
            f"names as the address, or make the server a certificate that names {host!r}"
        )
    if code in OF_ANOTHER_AUTHORITY:
        known = ", ".join(certificate.subject.rfc4514_string() for certificate in authorities)
        return (
            f"{address}: the certificate is signed by another authority ({leaf.issuer.rfc4514_string()}) than the one in {file} "
            f"({known}); get ca.crt anew from those who run the server, by a way that you trust. If they changed nothing, somebody "
            "may be between you and them"
        )
    fault = _date_fault(leaf, authorities, moment) if code in OUTSIDE_ITS_DATES else None
    return f"{address}: {fault or f'the certificate is refused ({error.verify_message}); make the server a new one'}"


def _date_fault(leaf: x509.Certificate, authorities: Sequence[x509.Certificate], moment: datetime) -> str | None:
    """What is wrong when the certificate, or the authority that signed it, is not valid at `moment`; None when both are."""
    for certificate in (leaf, *(authority for authority in authorities if authority.subject == leaf.issuer)):
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not first <= moment <= last:
            state = "has expired" if moment > last else "is not yet valid"
            return (
                f"the certificate of {certificate.subject.rfc4514_string()} {state}: valid from {_day(first)} to {_day(last)}, and "
                f"this machine's clock says {_day(moment)}; set the clock if it is wrong, else have the server's certificate renewed"
            )
    return None


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
