"""Nothing in the project opens data in a way that could run code: tensors are safetensors, or npy without pickle.

The check reads the source. It follows names through imports, not through variables: it guards against habit, not against malice.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("src", "strategies", "clients", "benchmarks", "experiments", "deploy")
OPENS_PICKLES = ("src/fedlingua/backbones/convert.py", "src/fedlingua/desk/pretraining/checkpoints.py")
"""The files that may call torch.load, with weights_only=True: for an older backbone, and for the state of a training of one's own."""

MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "jsonpickle", "shelve", "marshal"}
NAMES = {
    *("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
    *("torch.jit.load", "torch.hub.load_state_dict_from_url", "torch.serialization.load", "pandas.read_pickle"),
    *("torch.serialization.add_safe_globals", "torch.serialization.safe_globals"),  # they widen what weights_only lets through
    *("yaml.load_all", "yaml.full_load", "yaml.full_load_all", "yaml.unsafe_load", "yaml.unsafe_load_all"),
}
SAFE_YAML = {"yaml.SafeLoader", "yaml.CSafeLoader"}
MODEL = re.compile(r"transformers\.\w*(Model|For[A-Z])\w*\.from_pretrained")


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Name in the file -> dotted name of what it stands for: `import numpy as np` gives np -> numpy."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.AST | None, names: dict[str, str]) -> str:
    """`np.load` as "numpy.load"; empty for anything but names and their attributes."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def is_literal(node: ast.AST | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def call_faults(name: str, call: ast.Call, names: dict[str, str], opens_pickles: bool) -> Iterator[str]:
    """What a call of `name` lacks, or has too much of, to open nothing but data."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == "numpy.load" and "allow_pickle" not in keywords:
        yield "numpy.load without allow_pickle=False"
    if name == "torch.load" and not (opens_pickles and is_literal(keywords.get("weights_only"), True)):
        yield f"torch.load, which {' and '.join(OPENS_PICKLES)} alone may call, with weights_only=True"
    if name == "yaml.load" and dotted(keywords.get("Loader") or (call.args[1:] or [None])[0], names) not in SAFE_YAML:
        yield "yaml.load without SafeLoader"
    if MODEL.fullmatch(name) and not is_literal(keywords.get("use_safetensors"), True):
        yield "a model's from_pretrained without use_safetensors=True"
    for keyword in ("allow_pickle", "trust_remote_code", "shell"):
        if keyword in keywords and not is_literal(keywords[keyword], False):
            yield f"{keyword} other than False"


def faults(source: str, opens_pickles: bool = False) -> list[tuple[int, str]]:
    """(line, what) of everything in a source that could run code from data; `opens_pickles` for the one file that may."""
    tree = ast.parse(source)
    names = imported_names(tree)
    found: set[tuple[int, str]] = set()
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found |= {(node.lineno, f"import of {module}") for module in modules if set(module.split(".")) & MODULES}
            if any(alias.name == "*" for alias in node.names):
                found.add((node.lineno, "import of *, which hides what is taken"))
        elif isinstance(node, ast.Call):
            found |= {(node.lineno, what) for what in call_faults(dotted(node.func, names), node, names, opens_pickles)}
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = dotted(node, names)
            if name in NAMES or name.endswith("hub.load") or set(name.split(".")[1:]) & MODULES:
                found.add((node.lineno, name))
            elif name in {"torch.load", "numpy.load", "yaml.load"} and id(node) not in called:
                found.add((node.lineno, f"{name} handed on, where nobody sees how it is called"))
    return sorted(found)


FILES = [path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))]


def test_every_tree_that_there_is_is_walked() -> None:
    walked = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {*OPENS_PICKLES, "strategies/methods/fed_mean.py", "clients/translation.py", "benchmarks/mbart_memory.py"} <= walked


def test_nothing_opens_data_in_a_way_that_could_run_code() -> None:
    found = []
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        found += [f"{name}:{line}: {what}" for line, what in faults(path.read_text("utf-8"), name in OPENS_PICKLES)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, marshal",
        "import dill as json",
        "from cloudpickle import loads",
        "from joblib.numpy_pickle import load",
        "import shelve",
        "import cPickle",
        "def late():\n    import pickle",
        "import torch\ntorch.serialization.pickle.loads(b'')",
        "from torch import *",
        "import torch\ntorch.load('f')",
        "import torch\ntorch.load('f', weights_only=True)",
        "from torch import load as read\nread('f')",
        "import torch as t\nt.load('f')",
        "import torch\nread = torch.load",
        "import torch\nmap(torch.load, files)",
        "import torch.serialization\ntorch.serialization.load('f')",
        "from torch.serialization import add_safe_globals\nadd_safe_globals([x])",
        "import torch\ntorch.jit.load('f')",
        "import torch\ntorch.hub.load('repo', 'model')",
        "from torch import hub\nhub.load('repo', 'model')",
        "import tensorflow_hub as hub\nhub.load('u')",
        "import numpy as np\nnp.load('f')",
        "import numpy as np\nnp.load('f', allow_pickle=True)",
        "import numpy as np\nnp.load('f', allow_pickle=allowed)",
        "from numpy import load\nload('f')",
        "import numpy as np\nnp.lib.format.read_array(f, allow_pickle=True)",
        "import pandas\npandas.read_pickle('f')",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import yaml\nyaml.load(text, yaml.UnsafeLoader)",
        "from yaml import load\nload(text)",
        "import yaml\nyaml.full_load(text)",
        "eval('1')",
        "exec(text)",
        "compile(text, 'f', 'exec')",
        "run = eval",
        "import builtins\nbuiltins.exec(text)",
        "__import__('pickle')",
        "AutoModel.from_pretrained(d, trust_remote_code=True)",
        "AutoConfig.from_pretrained(d, trust_remote_code=trusted)",
        "from transformers import AutoModelForSeq2SeqLM\nAutoModelForSeq2SeqLM.from_pretrained(d)",
        "import transformers\ntransformers.M2M100ForConditionalGeneration.from_pretrained(d, use_safetensors=None)",
        "import subprocess\nsubprocess.run(command, shell=True)",
        "from subprocess import Popen\nPopen(command, shell=shell)",
        "import subprocess\nsubprocess.getoutput(command)",
        "import os\nos.system(command)",
        "from os import system\nsystem(command)",
        "import os\nos.popen(command)",
    ],
)
def test_each_way_to_run_code_from_data_is_found(source: str) -> None:
    assert {line for line, _ in faults(source)} == {source.count("\n") + 1}


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('a')",
        "model.eval()",
        "database.exec(query)",
        "torch.compile(model)",
        "import json\njson.load(f)",
        "from json import load\nload(f)",
        "import tomllib\ntomllib.load(f)",
        "from safetensors.torch import load_file\nload_file('f')",
        "import numpy as np\nnp.load('f', allow_pickle=False)",
        "import numpy as np\nnp.save('f', a, allow_pickle=False)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "from yaml import CSafeLoader, load\nload(text, CSafeLoader)",
        "import yaml\nyaml.safe_load(text)",
        "import subprocess\nsubprocess.run(['git'], shell=False)",
        "from transformers import AutoModel\nAutoModel.from_pretrained(d, use_safetensors=True, trust_remote_code=False)",
        "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained(d)",
        "from .pickling import load\nload(f)",
        "import os\nos.path.join('a')",
    ],
)
def test_what_runs_nothing_passes(source: str) -> None:
    assert faults(source) == []


def test_the_one_place_may_open_pickles_for_tensors_alone() -> None:
    assert faults("import torch\ntorch.load(f, mmap=True, weights_only=True)", opens_pickles=True) == []
    for arguments in ("f", "f, weights_only=False", "f, weights_only=only", "f, None, True"):
        assert faults(f"import torch\ntorch.load({arguments})", opens_pickles=True)
