"""A page that is whole in itself, with the policy that lets nothing else run in it."""

import base64
import hashlib
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

STYLE = """
:root { color-scheme: light dark; --ground: #fcfcfb; --card: #ffffff; --ink: #1b1f24; --soft: #59626c; --line: #c9ced4;
  --bad: #a83f00; --accent: #005a8e; --on-accent: #ffffff; --badge: #e8ecef; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1c2024; --ink: #e8eaec; --soft: #a3abb3;
  --line: #454c53; --bad: #ff9a5c; --accent: #6cbcf0; --on-accent: #0c1a24; --badge: #2a3036; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p { margin: .3rem 0; } a { color: var(--accent); }
.soft { color: var(--soft); font-size: .9rem; }
code, pre { font: .86rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .8rem; overflow-x: auto; }
.badge { display: inline-block; padding: .05rem .6rem; border-radius: 1rem; background: var(--badge); font-weight: 600; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
"""


@dataclass(frozen=True)
class Page:
    """What is sent: the page, and the headers that go with it."""

    html: str
    headers: dict[str, str]


def page(template: str, style: str, script: str = "", **values: object) -> Page:
    """A page of `template`, Jinja that puts `style` and `script` in unchanged; its policy knows both by their hashes alone.

    A script may ask this server, and nobody else.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(template).render(style=Markup(style), script=Markup(script), **values)
    policy = {
        "default-src": "'none'",
        "style-src": _hash(style),
        "script-src": _hash(script) if script else "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return Page(html, {"Content-Security-Policy": "; ".join(f"{what} {where}" for what, where in policy.items())})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
