"""The HTTP interface as a page, from the OpenAPI description alone: FastAPI's own loads its scripts from elsewhere."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedlingua.desk.serving.pages import STYLE, Page, page

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>HTTP interface – fedlingua</title><link rel="icon" href="data:,"><style>{{ style }}</style></head>
<body><header><h1>HTTP interface</h1><p>{{ about.description }}</p>
<p class="soft">For programs: <a href="openapi.json">openapi.json</a>. For people: <a href="./">the page to type in</a>.</p></header>
<main>
{% for one in operations %}
<section><h2><span class="badge">{{ one.method }}</span> <code>{{ one.path }}</code></h2>
<p>{{ one.description }}</p>
{% if one.example %}
<pre>curl --json '{{ one.example }}' {{ base }}{{ one.path }}</pre>
{% endif %}
{% if one.takes %}<p>Takes <a href="#{{ one.takes }}">{{ one.takes }}</a>.</p>{% endif %}
<div class="scroll"><table><thead><tr><th>status</th><th>answer</th><th></th></tr></thead><tbody>
{% for answer in one.answers %}
<tr><td>{{ answer.status }}</td><td>{% if answer.schema %}<a href="#{{ answer.schema }}">{{ answer.schema }}</a>{% endif %}</td>
<td>{{ answer.description }}</td></tr>
{% endfor %}
</tbody></table></div></section>
{% endfor %}
<section><h2>What is sent</h2>
{% for schema in schemas %}
<h3 id="{{ schema.name }}">{{ schema.name }}</h3><p class="soft">{{ schema.description }}</p>
<div class="scroll"><table><thead><tr><th>field</th><th>type</th><th></th></tr></thead><tbody>
{% for field in schema.fields %}
<tr><td><code>{{ field.name }}</code>{% if field.required %} *{% endif %}</td><td>{{ field.type }}</td><td>{{ field.description }}</td></tr>
{% endfor %}
</tbody></table></div>
{% endfor %}
<p class="soft">* has to be there.</p></section>
</main></body></html>
"""

OWN_STYLE = (
    STYLE
    + """
.scroll { overflow-x: auto; margin: .5rem 0; } table { border-collapse: collapse; font-size: .9rem; min-width: 100%; }
th, td { padding: .3rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); }
"""
)


@dataclass(frozen=True)
class Operation:
    """One endpoint. answers: status, schema and description of each."""

    method: str
    path: str
    description: str
    takes: str
    example: str
    answers: list[dict[str, str]]


def docs_page(openapi: Mapping[str, Any], base: str) -> Page:
    """The page of an OpenAPI description; base: what the addresses in its examples begin with."""
    schemas = openapi["components"]["schemas"]
    operations = [
        _operation(method, path, told, schemas) for path, methods in openapi["paths"].items() for method, told in methods.items()
    ]
    named = {one.takes for one in operations} | {answer["schema"] for one in operations for answer in one.answers}
    shown = [name for name in schemas if name in named or not name.startswith(("HTTP", "Validation"))]
    return page(
        TEMPLATE,
        OWN_STYLE,
        about=openapi["info"],
        operations=operations,
        schemas=[_schema(name, schemas[name]) for name in shown],
        base=base,
    )


def _operation(method: str, path: str, told: Mapping[str, Any], schemas: Mapping[str, Any]) -> Operation:
    takes = _name(_content(told.get("requestBody", {})))
    examples = schemas.get(takes, {}).get("examples", [])
    answers = [
        {"status": status, "schema": _name(_content(answer)), "description": answer["description"]}
        for status, answer in sorted(told["responses"].items())
    ]
    example = json.dumps(examples[0], ensure_ascii=False) if examples else ""
    return Operation(method.upper(), path, told.get("description", ""), takes, example, answers)


def _content(told: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = told.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _schema(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    required = schema.get("required", [])
    fields = [
        {"name": field, "type": _type(told), "required": field in required, "description": told.get("description", "")}
        for field, told in schema.get("properties", {}).items()
    ]
    return {"name": name, "description": schema.get("description", ""), "fields": fields}


def _type(told: Mapping[str, Any]) -> str:
    if "anyOf" in told:
        return " or ".join(_type(one) for one in told["anyOf"])
    if "$ref" in told:
        return _name(told)
    if told.get("type") == "array":
        return f"list of {_type(told['items'])}"
    if told.get("type") == "object" and isinstance(told.get("additionalProperties"), Mapping):
        return f"object of {_type(told['additionalProperties'])}"
    return str(told.get("type", "any"))
