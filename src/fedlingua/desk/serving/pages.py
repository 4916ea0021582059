"""The pages of `serve`: one to type in, and the HTTP interface, as FastAPI's own page of that loads its scripts from elsewhere."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedlingua.desk.templates import environment

TEMPLATES = environment(Path(__file__).parent / "pages")


@dataclass(frozen=True)
class Page:
    """A page, and the headers that are sent with it."""

    html: str
    headers: dict[str, str]


def translation_page(run: str) -> Page:
    """The page to type in, for a run of that name."""
    return _page("translate.html", f"{run} – fedlingua translate", run=run)


def docs_page(openapi: Mapping[str, Any], base: str) -> Page:
    """The HTTP interface. base: what the addresses in its examples begin with."""
    # FastAPI's own schemas of errors are answered by none.
    schemas = {
        name: schema for name, schema in openapi["components"]["schemas"].items() if not name.startswith(("HTTP", "Validation"))
    }
    return _page(
        "docs.html", "HTTP interface – fedlingua", about=openapi["info"], paths=openapi["paths"], schemas=schemas, base=base
    )


def _page(template: str, title: str, **values: object) -> Page:
    """Its policy knows style and script by their hashes, so nothing else runs; a script may ask this server, and nobody else."""
    html = TEMPLATES.get_template(template).render(title=title, **values)
    hashes = {
        tag: " ".join(_hash(text) for text in re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)) or "'none'"
        for tag in ("style", "script")
    }
    policy = {
        "default-src": "'none'",
        "style-src": hashes["style"],
        "script-src": hashes["script"],
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return Page(html, {"Content-Security-Policy": "; ".join(f"{what} {where}" for what, where in policy.items())})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def schema_name(body: Mapping[str, Any]) -> str:
    """Of a request's or an answer's JSON; empty where it has none."""
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).rpartition("/")[2]


def type_name(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(type_name(each) for each in field["anyOf"])
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if field.get("type") == "array":
        return f"list of {type_name(field['items'])}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), Mapping):
        return f"object of {type_name(field['additionalProperties'])}"
    return str(field.get("type", "any"))


TEMPLATES.filters |= {"type": type_name, "schema": schema_name, "json": partial(json.dumps, ensure_ascii=False)}
