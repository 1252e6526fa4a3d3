# client: Instructor
# pip: instructor==1.17.0
"""Instructor in its modes for OpenAI's client."""

import instructor
import openai
from pydantic import BaseModel

ASKED = [{"role": "user", "content": "What is the capital of France?"}]


class Place(BaseModel):
    """A nested form, which schemas refer to."""

    name: str


class City(BaseModel):
    """The answer's form."""

    city: Place


def made(at, mode=instructor.Mode.TOOLS, key=None):
    return instructor.from_openai(openai.OpenAI(base_url=f"{at.url}/v1", api_key=key or at.key), mode=mode)


def ask(client, at, model=None):
    return client.chat.completions.create(model=model or at.model, messages=ASKED, response_model=City).city.name


def chat_streamed(at):
    parts = made(at).chat.completions.create_partial(model=at.model, messages=ASKED, response_model=City)
    assert list(parts)[-1].city.name == "Paris"


def tools(at):
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
        assert ask(made(at, mode), at) == "Paris"


def structured_output(at):
    assert ask(made(at, instructor.Mode.JSON_SCHEMA), at) == "Paris"


def error_401(at):
    with at.raises(Exception, lambda error: "401" in str(error)):
        ask(made(at, key="sk-wrong"), at)


def error_404(at):
    with at.raises(Exception, lambda error: "404" in str(error)):
        ask(made(at), at, "no-such-model")


def retry_429(at):
    assert ask(made(at, key=at.limited_key), at) == "Paris"


def responses(at):
    client = made(at, instructor.Mode.RESPONSES_TOOLS)
    assert client.responses.create(model=at.model, input=ASKED, response_model=City).city.name == "Paris"
