"""The command lines of SuperLink and SuperNode, for the versions of Flower that this project allows."""

from fedlingua.common.errors import ConfigError
from fedlingua.consent.site_file import SITE_FILE, SiteFile
from fedlingua.desk.deployment.server_file import ServerFile
from fedlingua.desk.processes import HOST, over_grpc, program

EVERYWHERE = ("0.0.0.0", "[::]")


def control_address(server: ServerFile) -> str:
    """Return the address to which runs are submitted from the server's own machine."""
    host, _, port = (server.control if over_grpc() else server.fleet).rpartition(":")
    return f"{HOST if host in EVERYWHERE else host}:{port}"


def superlink_command(server: ServerFile) -> list[str]:
    """Return the command of a SuperLink that uses TLS and identifies nodes by their keys, unless the server's file says insecure."""
    host, _, port = (server.control if over_grpc() else server.fleet).rpartition(":")
    command = [program("flower-superlink"), "--isolation", "subprocess", "--host", host, "--port", port]
    command += ["--database", str(server.home / "superlink.db")]
    if over_grpc():
        command += ["--fleet-api-type", "grpc-rere", "--fleet-api-address", server.fleet]
    if server.insecure:
        return [*command, "--insecure"]
    for option, name in {"certfile": "server.crt", "keyfile": "server.key", "ca-certfile": "ca.crt"}.items():
        command += [f"--ssl-{option}", str(server.certificates / name)]
    return [*command, "--enable-supernode-auth"]


def supernode_command(site: SiteFile, port: int, max_retries: int | None = None) -> list[str]:
    """Return the command of a site's SuperNode. port: of the loopback API that its own client processes use.

    Raises:
        ConfigError: the site file's path has a quote or a backslash, which Flower's --node-config cannot express.
    """
    if {'"', "'", "\\"} & set(str(site.path)):
        raise ConfigError(f"{site.path}: Flower cannot pass on a path with quotes or backslashes; move the site's folder")
    command = [program("flower-supernode"), "--superlink", site.address, "--host", HOST, "--port", str(port)]
    command += ["--isolation", "subprocess", "--node-config", f'{SITE_FILE}="{site.path}"']
    if over_grpc():
        command.append("--grpc-rere")
    if max_retries is not None:
        command += ["--max-retries", str(max_retries)]
    if site.insecure:
        return [*command, "--insecure"]
    return [*command, "--root-certificates", str(site.authority), "--auth-supernode-private-key", str(site.key)]


def believed_there(printed: str) -> bool:
    """Return whether a SuperNode ended because its SuperLink considers its key online; unknown keys are refused before that check."""
    from flwr.supercore.error import ApiErrorCode  # flwr takes almost a second to load

    return f"[code: {int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)}]" in printed
