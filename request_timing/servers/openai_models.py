"""Which models an endpoint has, and what to say when its first request fails."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from request_timing.errors import UserError
from request_timing.servers.failures import ADVICE
from request_timing.servers.openai_endpoint import OpenAIEndpoint
from request_timing.servers.openai_errors import ERRORS, failure
from request_timing.servers.timing import RequestFailed

MOST_MODELS = 10


def choose_model(endpoint: OpenAIEndpoint) -> None:
    """Take the one model that the endpoint lists, if none is named.

    Raises UserError where there are several, or no list.
    """
    if endpoint.model:
        return
    try:
        names = _listed(endpoint)
    except RequestFailed as failed:
        if endpoint.adapt(failed):
            choose_model(endpoint)
            return
        kind = failed.failure.kind
        other = "try --demo" if kind == "refused" else "name the model with --model"
        raise UserError(f"expected an OpenAI-compatible API at {endpoint.url}, found: {failed}; "
                      f"{ADVICE[kind] or 'check the base URL'}, or {other}") from None
    if len(names) != 1:
        raise UserError(f"--model: expected a model's name, found none; {endpoint.url} lists "
                      f"{len(names)}: {_some(names)}")
    endpoint.model = names[0]


def trouble(endpoint: OpenAIEndpoint, failed: RequestFailed) -> UserError:
    """A first request that failed, with what to do about it."""
    kind = failed.failure.kind
    advice = ADVICE[kind]
    provider, model = endpoint.provider, endpoint.model
    streaming = " and ".join(provider.streaming_models)
    unclear = kind in ("http", "error_in_answer", "unknown_model")
    if kind == "key":
        variable = provider.key_variable
        advice = (f"check the key in {variable}" if variable else
                  "name the variable that holds its key with --api-key-env")
    elif kind == "not_streamed" or (unclear and model.startswith(provider.not_streaming)):
        advice = (f"the model {model} does not stream here, and without a stream there is no "
                  f"TTFT; choose one that does{f': {streaming}' if streaming else ''} (--model)")
    elif kind == "unknown_model" or (kind == "http" and failed.failure.http_status == 404):
        advice = f"check --model and the base URL; {_models_there(endpoint)}"
    elif kind == "refused":
        advice += ", or try --demo"
    return UserError(f"{endpoint.url}, model {model or 'not chosen'}: expected a streamed answer, "
                   f"found: {failed}; {advice or 'check the model and the base URL'}")


def _models_there(endpoint: OpenAIEndpoint) -> str:
    """What /models lists, for a sentence."""
    if endpoint.provider.streaming_models:
        return "the models that stream here: " + " and ".join(endpoint.provider.streaming_models)
    try:
        return f"the models there: {_some(_listed(endpoint))}"
    except RequestFailed:
        return "no list of models is to be had there"


def _listed(endpoint: OpenAIEndpoint) -> Sequence[str]:
    try:
        return [endpoint.shown(str(model.id)) for model in endpoint.client.models.list()]
    except (AttributeError, TypeError):  # what the SDK makes of a page or a bare list
        raise RequestFailed("no_api", "an API that lists no models", 200) from None
    except ERRORS as error:
        raise failure(error, httpx.URL(endpoint.url), endpoint.secrets) from None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_MODELS]) + (" ..." if len(names) > MOST_MODELS else "") or (
        "no model")
