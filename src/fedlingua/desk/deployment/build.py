"""The bundle of a run: the code that a node runs, and nothing else in the checkout."""

from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import tomli_w

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, CARRIED, bundled_files, read_toml
from fedlingua.desk.paths import check_folder_to_write

CONFIG, DATE = "pyproject.toml", (2024, 10, 1, 0, 0, 0)


def build_bundle(app_dir: Path) -> bytes:
    """Return the app's bundle, byte for byte as Flower builds it; Flower takes a second to load, and reads all files below a folder."""
    files = {name: file.read_bytes() for name, file in bundled_files(app_dir).items()}
    files[CONFIG] = tomli_w.dumps(read_toml(app_dir / CONFIG)).encode()
    ordered = [(name, files[name]) for name in (CONFIG, *sorted(files.keys() - {CONFIG}))]
    lines = [f"{name},{sha256(content).hexdigest()},{8 * len(content)}" for name, content in ordered]
    bundle = BytesIO()
    with ZipFile(bundle, "w") as archive:
        for name, content in (*ordered, (".info/CONTENT", "\n".join(lines).encode())):
            archive.writestr(ZipInfo(name, DATE), content)
    return bundle.getvalue()


def stage_app(app_dir: Path, folder: Path) -> None:
    """Unpack the app's bundle into a folder, so that `flwr run` builds the bundle from these files alone."""
    left_out = folder / "src/fedlingua/desk/left_out.py"  # Flower refuses a pattern of fab-exclude that matches nothing
    left_out.parent.mkdir(parents=True)
    left_out.touch()
    ZipFile(BytesIO(build_bundle(app_dir))).extractall(folder)


def make_private_folder(folder: Path, option: str) -> None:
    """Make a server's or a site's folder, which git ignores; ConfigError if it cannot be made, or if a run would carry it to all nodes."""
    check_folder_to_write(folder, option)
    place = folder.resolve()
    if place == APP_DIR or any(place.is_relative_to(APP_DIR / carried) for carried in CARRIED):
        where = f"outside {', '.join(CARRIED)}, which runs carry to all nodes"
        raise ConfigError(f"{option} {folder}: belongs to the app, but this folder will hold keys; give a new one {where}")
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
