"""The pages of `serve`: one to type in, and one about the HTTP interface, because FastAPI's own loads scripts from other servers."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse

from fedlingua.desk.templates import environment

TEMPLATES = environment(Path(__file__).parent / "pages")


def translation_page(run: str) -> HTMLResponse:
    return _page("translate.html", f"{run} – fedlingua translate", run=run)


def docs_page(openapi: Mapping[str, Any], base: str) -> HTMLResponse:
    """Return the page about the HTTP interface. base: the server's URL, for the examples."""
    # No endpoint replies with FastAPI's own schemas of errors.
    schemas = openapi["components"]["schemas"].items()
    schemas = {name: schema for name, schema in schemas if not name.startswith(("HTTP", "Validation"))}
    return _page(
        "docs.html", "HTTP interface – fedlingua", about=openapi["info"], paths=openapi["paths"], schemas=schemas, base=base
    )


def _page(template: str, title: str, **values: object) -> HTMLResponse:
    """Render a page; its policy allows style and script by hash, so nothing else runs, and connections to this server only."""
    html = TEMPLATES.get_template(template).render(title=title, **values)
    hashes = {}
    for tag in ("style", "script"):
        digests = [hashlib.sha256(text.encode()).digest() for text in re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)]
        hashes[tag] = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"
    policy = (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def schema_name(body: Mapping[str, Any]) -> str:
    """Return the name of the schema of a request's or a reply's JSON; empty if it has none."""
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
