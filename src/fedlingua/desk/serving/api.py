"""The HTTP application: its endpoints, the schemas of requests and replies, and errors in one form."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictStr
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fedlingua.common.errors import FedlinguaError
from fedlingua.common.languages import language_name, nearest, parse_direction, right_to_left
from fedlingua.corpora.read import has_half_character
from fedlingua.desk.serving.batching import Batcher, FullError
from fedlingua.desk.serving.guard import Limits
from fedlingua.desk.serving.models import Models
from fedlingua.desk.serving.pages import docs_page, translation_page
from fedlingua.desk.translating.models import TrainedModel

FAREWELL_S = 10.0
"""Time to answer the waiting requests when the server shuts down."""


class Answering(BaseModel):
    """The model that answers for a direction: a site's own, or that of an encoder and a decoder cluster."""

    source: str
    target: str
    site: str | None = Field(description="Whose own model it is; null: the clusters'.")
    clusters: dict[str, str] = Field(description="Part of the model -> cluster, where it is the clusters'.")
    told: str = Field(description="The same in words.")


class ModelList(BaseModel):
    """All sites, languages and directions of the server."""

    run: dict[str, Any]
    sites: list[Answering] = Field(description="Of `site`.")
    directions: list[Answering] = Field(description="Of `source` and `target`, held by a site or not.")
    clusters: dict[str, dict[str, list[str]]] = Field(description="Part -> cluster -> its sites.")
    languages: dict[str, dict[str, str]] = Field(description="Code -> name, and in which way it is written.")
    why_no_direction: str = Field(description="Why `site` has to be given; empty: it has not.")
    limits: dict[str, float]


class Asked(BaseModel):
    """A request: sentences, and the model to translate them, a site's or the nearest for a direction."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"source": "de", "target": "fr", "sentences": ["Der Arzt liest das Buch."]}]},
    )
    site: StrictStr | None = Field(None, description="A site of the run; instead of source and target.")
    source: StrictStr | None = Field(None, description="Language of the sentences, as de.")
    target: StrictStr | None = Field(None, description="Language of the translations, as fr.")
    sentences: Annotated[list[StrictStr], Field(min_length=1, description="Each on one line; an empty one stays empty.")]


class Answer(BaseModel):
    """A translation for each sentence, in order."""

    translations: list[str]
    answered_by: Answering
    seconds: float = Field(description="From the request to its answer, waiting included.")


class Health(BaseModel):
    """The server's state, and what it has done since its start."""

    status: str
    uptime_s: float
    waiting: int = Field(description="Requests.")
    requests: int = Field(description="Answered since the start, as the next two.")
    sentences: int
    batches: int = Field(description="That they were translated in.")


class Refusal(BaseModel):
    """Why a request is refused, and what is wanted instead."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    403: {"model": Refusal, "description": "Requested under a name that is not this server's, or by a page of another site."},
    404: {"model": Refusal, "description": "No such site or language, or a direction without a model."},
    408: {"model": Refusal, "description": "The request came too slowly."},
    413: {"model": Refusal, "description": "The request is too large."},
    422: {"model": Refusal, "description": "Invalid fields, lengths or JSON."},
    503: {"model": Refusal, "description": "Too many requests wait; try again after the seconds in Retry-After."},
    504: {"model": Refusal, "description": "Not answered in time."},
}


def application(models: Models, limits: Limits) -> FastAPI:
    """Return the application for a run's models; the thread that translates runs as long as it does."""
    started = time.monotonic()

    def translated(variant: TrainedModel, sentences: list[str]) -> list[str]:
        if number := models.too_long(variant, sentences):
            raise _no(422, f"sentence {number} has more than {models.translator.max_tokens} tokens; cut it into sentences")
        return models.translate(variant, sentences)

    batcher = Batcher(translated, limits.waiting)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close, FAREWELL_S)

    run = models.run
    about = {"name": run.run.folder.directory.name, "method": run.settings.method, "backbone": run.settings.backbone}
    app = FastAPI(
        title="fedlingua",
        version=str(run.run.about.get("versions", {}).get("fedlingua") or "0"),
        description=f"Translations by what the run {about['name']} has trained (method {about['method']}).",
        docs_url=None,
        redoc_url=None,
        lifespan=living,
    )
    listed = _listed(models, about, limits)

    @app.get("/", include_in_schema=False)
    async def typing() -> Response:
        return translation_page(about["name"])

    @app.get("/docs", include_in_schema=False)
    async def documentation(request: Request) -> Response:
        return docs_page(app.openapi(), str(request.base_url).rstrip("/"))

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses={503: {"model": Health, "description": "It does not translate any more."}})
    async def health(response: Response) -> Health:
        """Report whether the server translates, and what it has done."""
        response.status_code = 200 if batcher.works else 503
        return Health(
            status="ok" if batcher.works else "down",
            uptime_s=round(time.monotonic() - started, 1),
            waiting=batcher.waiting,
            requests=batcher.requests,
            sentences=batcher.sentences,
            batches=batcher.batches,
        )

    @app.get("/v1/models")
    async def all_models() -> ModelList:
        """List the sites, the directions, and the model for each."""
        return listed

    @app.post("/v1/translate", responses=REFUSALS)
    async def translate(asked: Asked) -> Answer:
        """Translate sentences with a site's model, or in any direction with that of the nearest clusters."""
        began = time.monotonic()
        variant = _variant(asked, models)
        _check_sentences(asked.sentences, limits)
        try:
            future = batcher.ask(variant, asked.sentences)
            translations = await asyncio.wait_for(asyncio.wrap_future(future), limits.timeout_s)
        except FullError as error:
            raise _no(503, f"{limits.waiting} requests already wait; try again in {error.retry_s} s", error.retry_s) from None
        except asyncio.CancelledError:
            raise _no(503, "the server is shutting down", 5) from None
        except TimeoutError:
            raise _no(
                504, f"not answered within {limits.timeout_s:g} s; send fewer sentences at a time, or try again later"
            ) from None
        return Answer(translations=translations, answered_by=_answering(variant), seconds=round(time.monotonic() - began, 4))

    app.add_exception_handler(HTTPException, _in_the_same_form)
    app.add_exception_handler(RequestValidationError, _without_the_text)
    app.add_exception_handler(Exception, _ours)
    return app


def _no(status: int, what: str, retry_s: int | None = None) -> HTTPException:
    return HTTPException(status, what, {"Retry-After": str(retry_s)} if retry_s is not None else None)


async def _in_the_same_form(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": _sendable(str(error.detail))}, error.status_code, error.headers)


async def _ours(request: Request, error: Exception) -> Response:
    """Return a reply without details; the guard receives the error next and logs its place."""
    return JSONResponse({"error": "an internal error; the server's log says where"}, 500)


def _sendable(words: str) -> str:
    """Escape halves of characters (lone surrogates), which JSON can carry and UTF-8 cannot."""
    return words.encode("utf-8", "backslashreplace").decode()


async def _without_the_text(request: Request, error: Exception) -> Response:
    """Return pydantic's messages without the input, which may be text to translate."""
    assert isinstance(error, RequestValidationError)
    messages = [f"{'.'.join(map(str, each['loc'][1:])) or 'request'}: {each['msg']}" for each in error.errors()[:3]]
    wanted = 'wanted {"site": ..., "sentences": [...]} or {"source": ..., "target": ..., "sentences": [...]} as application/json'
    return JSONResponse({"error": _sendable(f"{'; '.join(messages)}; {wanted}")}, 422)


def _variant(asked: Asked, models: Models) -> TrainedModel:
    """Return the model that answers; raise 404 with the available ones, or 422 for an incomplete choice."""
    if asked.site is not None:
        if asked.source is not None or asked.target is not None:
            raise _no(422, "got site, and source or target; wanted either a site, or both languages")
        if asked.site not in (sites := models.run.sites):
            raise _no(404, f"no site {asked.site!r}{nearest(asked.site, sites)}; there are {', '.join(sites)}")
        if asked.site not in models.sites:
            raise _no(404, f"what {asked.site} trained lies with the site itself; here are {', '.join(models.sites) or 'none'}")
        return models.sites[asked.site]
    if asked.source is None or asked.target is None:
        raise _no(422, "wanted a site, or both source and target")
    if models.run.why_no_direction:
        raise _no(404, f"{models.run.why_no_direction}; give site instead of source and target: {', '.join(models.sites)}")
    try:
        return models.of_direction(parse_direction(f"{asked.source}--{asked.target}"))
    except FedlinguaError as error:
        raise _no(404, str(error)) from None


def _check_sentences(sentences: list[str], limits: Limits) -> None:
    if len(sentences) > limits.sentences:
        raise _no(422, f"got {len(sentences):,} sentences; wanted at most {limits.sentences:,} in a request")
    for number, sentence in enumerate(sentences, start=1):
        if len(sentence) > limits.characters:
            raise _no(422, f"sentence {number} has {len(sentence):,} characters; wanted at most {limits.characters:,}")
        if has_half_character(sentence):
            raise _no(422, f"sentence {number} has half a character (a lone surrogate, as \\ud800); wanted whole ones")
        if "\n" in sentence:
            raise _no(422, f"sentence {number} has a line break; wanted one line, so send the lines as sentences of their own")


def _answering(variant: TrainedModel) -> Answering:
    return Answering(
        source=variant.direction.source,
        target=variant.direction.target,
        site=variant.site,
        clusters={str(part): name for part, name in variant.clusters.items()},
        told=variant.owner,
    )


def _listed(models: Models, about: dict[str, Any], limits: Limits) -> ModelList:
    directions = [] if models.run.why_no_direction else models.directions()
    used = {code for each in (*directions, *models.sites.values()) for code in each.direction.sides}
    return ModelList(
        run=about,
        sites=[_answering(variant) for variant in models.sites.values()],
        directions=[_answering(variant) for variant in directions],
        clusters={str(part): {name: list(sites) for name, sites in named.items()} for part, named in models.run.clusters.items()},
        languages={
            code: {"name": language_name(code), "written": "rtl" if right_to_left(code) else "ltr"}
            for code in models.languages
            if code in used
        },
        why_no_direction=models.run.why_no_direction,
        limits={"sentences": limits.sentences, "characters": limits.characters, "timeout_s": limits.timeout_s},
    )
