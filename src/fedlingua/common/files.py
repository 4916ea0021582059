"""Files that a user names: resolve paths, read TOML, write atomically, and check that a place can be written to."""

import fcntl
import hashlib
import json
import math
import os
import time
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import fedlingua_demo
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import nearest


def _app_of(library: Path) -> Path:
    """Return the app's root for the folder that holds the library: around that `src`, or in an installed wheel beside the library."""
    carried = library / "fedlingua_app"
    return carried if carried.is_dir() else library.parent


APP_DIR = _app_of(Path(__file__).resolve().parents[2])
"""Root of the app's code: the checkout, what a wheel carries of it, or the bundle as a node unpacked it."""
CHECKOUT = _app_of(Path(fedlingua_demo.__file__).resolve().parents[1])
"""Root of the installed checkout or wheel, with the experiments, which no bundle holds."""
CARRIED = ("src/fedlingua", "strategies", "clients")
"""Folders that every run carries to its nodes."""


def resolve(path: str) -> Path:
    """Return the absolute path; a relative one starts at the checkout's root."""
    given = Path(path).expanduser()
    return given if given.is_absolute() else CHECKOUT / given


def bundled_files(app_dir: Path) -> dict[str, Path]:
    """Return a run's bundle, sorted, name -> file: the code that a node runs, pyproject.toml and LICENSE; no desk and no tests.

    `fab-include` and `fab-exclude` in pyproject.toml tell Flower the same. A user's own strategy lies beside pyproject.toml. In an
    installed wheel the library lies beside the app, not below `src`.
    """
    folders = {name: app_dir / name for name in CARRIED}
    if not (app_dir / "src").is_dir():
        folders["src/fedlingua"] = app_dir.parent / "fedlingua"
    code = {f"{name}/{file.relative_to(folder)}": file for name, folder in folders.items() for file in folder.rglob("*.py")}
    code |= {file.name: file for file in (app_dir / "pyproject.toml", app_dir / "LICENSE", *app_dir.glob("*.py"))}

    def carried(name: str, file: Path) -> bool:
        left_out = name.startswith("src/fedlingua/desk/") or file.match("test_*.py") or file.match("*_test.py")
        return file.is_file() and not left_out

    return {name: file for name, file in sorted(code.items()) if carried(name, file)}


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file, with or without a byte order mark of UTF-8; raise ConfigError if it is missing or unreadable, or, with the
    line, if it is not TOML."""
    try:
        raw = path.read_bytes()
        if encoding := wide_encoding(raw):
            raise ConfigError(f"{path}: this is {encoding}; convert it to UTF-8, as with iconv -f {encoding} -t UTF-8")
        return tomllib.loads(raw.decode("utf-8-sig"))
    except IsADirectoryError as error:
        example = "".join(f", for example {file}" for file in sorted(path.glob("*.toml"))[:1])
        raise ConfigError(f"{path} is a folder; wanted a TOML file{example}") from error
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
        known = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise ConfigError(f"{path}: there is no such file{nearest(path.name, known)}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}; mend it there") from error


def wide_encoding(raw: bytes) -> str:
    """Return "UTF-16" or "UTF-32" for the beginning of a text in it, by its byte order mark or its zero bytes; else ""."""
    if raw.startswith((BOM_UTF32_LE, BOM_UTF32_BE)):
        return "UTF-32"
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "UTF-16"
    if 3 * raw.count(0) <= len(raw):
        return ""
    # Of the four bytes of a usual character, UTF-32 has two that are 0.
    return "UTF-16" if any(raw[2::4] + raw[3::4]) and any(raw[::4] + raw[1::4]) else "UTF-32"


def json_hash(content: Any) -> str:
    """Return the SHA-256 of a JSON value, in hexadecimal digits; the order of an object's keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def json_text(content: Mapping[str, Any]) -> str:
    """Format a JSON object as a run's and a site's files hold it."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def replace_text(file: Path, text: str, mode: int = 0o666) -> None:
    """Write a file atomically: under another name, then renamed. mode: its permissions, from the first byte on, less the umask."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        _write_to_disk(aside, text, mode)
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def _write_to_disk(file: Path, text: str, mode: int = 0o666) -> None:
    file.unlink(missing_ok=True)  # the file opened is a new one, so its permissions are these
    with open(file, "x", encoding="utf-8", opener=partial(os.open, mode=mode)) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def to_disk(path: Path) -> None:
    """Sync a file or folder to disk, so that its content survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(file: Path, seconds: float = math.inf, refusal: Exception | None = None) -> Iterator[None]:
    """Hold a lock on a file, which is made if it is not there; other processes wait for it, and get `refusal` or a TimeoutError
    after `seconds`.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    with file.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > ends:
                    raise refusal or TimeoutError from error
                time.sleep(0.05)
        yield


def written_once(file: Path, text: str) -> str:
    """Write a new file and sync it to disk. Return its text, which is another writer's if the file already existed.

    If several processes write at once, the first one wins, and none reads a half-written file.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.{os.getpid()}")
    _write_to_disk(aside, text)
    try:
        os.link(aside, file)
    except FileExistsError:
        return file.read_text(encoding="utf-8")
    finally:
        aside.unlink()
    return text


def sha256(file: Path) -> str:
    """Return the hexadecimal sha256 of a file's bytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
