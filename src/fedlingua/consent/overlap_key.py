"""The overlap key, with which sites hash sentences to compare them. All sites share it; the server must not have it."""

import re
from pathlib import Path

from fedlingua.common.errors import ConfigError

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_WANTED = "wanted one line of 64 hexadecimal digits, as `fedlingua site overlap-key` writes it"


def read_overlap_key(file: Path) -> bytes:
    """Read the 32 bytes of a key file; lines that begin with # are notes.

    Raises:
        ConfigError: There is no such file, or no key in it; the message never quotes the file.
    """
    try:
        lines = file.read_text(encoding="ascii").split("\n")
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: there is no such file; get the sites' overlap key, or make it for all of them") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__}); {_WANTED}") from None
    words = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if len(words) != 1:
        raise ConfigError(f"{file}: got {len(words)} lines besides notes; {_WANTED}")
    if not _KEY.fullmatch(words[0]):
        raise ConfigError(f"{file}: got {len(words[0])} characters that are no such key; {_WANTED}")
    return bytes.fromhex(words[0])
