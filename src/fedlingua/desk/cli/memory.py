"""`fedlingua memory`: build datastores from the training text of a run's sites, which translate and serve then use."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedlingua.desk.cli.options import Data, RunOption, SitesOption
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.translating.decoding import Search
from fedlingua.desk.translating.memory import remember, text_of_run
from fedlingua.desk.translating.models import RunModels, check_translates

commands = Commands()
MostKeys = Annotated[
    int, Option(min=0, help="Most tokens to store, of sentences drawn at random; fewer translate faster; 0: all.")
]


@commands.command(epilog=example("fedlingua memory --run runs/demo-adapter-families-2022 --site hospital-de"))
def memory(run: RunOption, how: Search, data: Data = None, site: SitesOption = None, most_keys: MostKeys = 0) -> Answer:
    """Build a memory from a site's training text and its model after a run (kNN-MT, Khandelwal et al. 2021)."""
    how.check()
    models = RunModels(run)
    check_translates(models.settings, run)
    chosen = [models.of_site(name) for name in site or models.sites]
    texts = [text_of_run(models, model.site or "", str(data.expanduser().resolve()) if data else "") for model in chosen]
    return [say_made(remember(model, text, how, most_keys)) for model, text in zip(chosen, texts, strict=True)]


def say_made(about: dict[str, Any]) -> dict[str, Any]:
    """Print what a memory holds and the settings chosen for it, and return `about`."""
    bleu = ", ".join(f"{weight} {score:.2f}" for weight, score in about["dev"].items())
    say(f"{about['site']}: {about['keys']:,} tokens of {about['sentences']:,} sentences; BLEU of dev by lambda: {bleu}")
    mixed = f"lambda {about['lambda']:g}, k {about['neighbours']}, T {about['temperature']:.3g}"
    used = mixed if about["lambda"] else "0, so unused"
    say(f"{about['site']}: {used}; {Path(about['memory'])}")
    return about
