"""The program that Flower starts for each message at a site: it passes the call to the site's worker, and ends as the worker's fork does.

It is a script that imports almost nothing: `python -I -S worker_call.py SOCKET PROGRAM... -- ARGUMENTS...`. If no worker answers, it
runs PROGRAM instead.
"""

import json
import os
import socket
import sys

START_S = 60.0
"""Time for a busy worker to accept a call."""


def main() -> None:
    """Pass the call to the worker and wait for its end."""
    end = sys.argv.index("--")
    path, program, arguments = sys.argv[1], sys.argv[2:end], sys.argv[end + 1 :]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(START_S)
        connection.connect(path)
        call = {"arguments": ["flwr-clientapp", *arguments], "environment": dict(os.environ), "folder": os.getcwd()}
        content = json.dumps(call).encode()
        socket.send_fds(connection, [len(content).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(content)
    except OSError:
        os.execv(program[0], [*program, *arguments])
    connection.settimeout(None)
    status = connection.recv(1)
    sys.exit(status[0] if status else 1)


if __name__ == "__main__":
    main()
