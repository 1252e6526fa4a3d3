# client: OpenAI SDK for Python
# pip: openai==3.57.0 pydantic==2.14.4
"""OpenAI's library for Python."""

import openai
import pydantic

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class City(pydantic.BaseModel):
    """The answer's form."""

    city: str


def client(at, key=None):
    return openai.OpenAI(base_url=f"{at.url}/v1", api_key=key or at.key)


def chat_streamed(at):
    stream = client(at).chat.completions.create(model=at.model, messages=ASKED, stream=True)
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def chat_whole(at):
    answer = client(at).chat.completions.create(model=at.model, messages=ASKED)
    assert "Paris" in answer.choices[0].message.content


def tools(at):
    asked = [{"role": "user", "content": "use the tool"}]
    first = client(at).chat.completions.create(model=at.model, messages=asked, tools=[TOOL]).choices[0]
    assert first.finish_reason == "tool_calls"
    [call] = first.message.tool_calls
    assert call.function.name == "weather"
    asked += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    with client(at).chat.completions.stream(model=at.model, messages=asked, tools=[TOOL]) as stream:
        assert stream.get_final_completion().choices[0].message.content


def structured_output(at):
    parsed = client(at).chat.completions.parse(model=at.model, messages=ASKED, response_format=City)
    assert parsed.choices[0].message.parsed.city == "Paris"


def reasoning(at):
    asked = [{"role": "user", "content": "think first"}]
    message = client(at).chat.completions.create(model=at.model, messages=asked).choices[0].message
    assert "capital" in message.reasoning_content
    assert "Paris" in message.content


def usage_in_stream(at):
    stream = client(at).chat.completions.create(
        model=at.model, messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    assert list(stream)[-1].usage.completion_tokens > 0


def error_401(at):
    with at.raises(openai.AuthenticationError, lambda error: error.code):
        client(at, "sk-wrong").chat.completions.create(model=at.model, messages=ASKED)


def error_404(at):
    with at.raises(openai.NotFoundError, lambda error: error.code == "model_not_found"):
        client(at).chat.completions.create(model="no-such-model", messages=ASKED)


def retry_429(at):
    assert client(at, at.limited_key).chat.completions.create(model=at.model, messages=ASKED).choices


def embeddings(at):
    answer = client(at).embeddings.create(model=at.vectors, input=["a", "b"])
    assert [len(each.embedding) for each in answer.data] == [3, 3]


def responses(at):
    with client(at).responses.stream(model=at.model, input="What is the capital of France?") as stream:
        assert "Paris" in stream.get_final_response().output_text


def cancel(at):
    stream = client(at).chat.completions.create(
        model=at.model, messages=[{"role": "user", "content": at.forever}], stream=True
    )
    for _ in zip(range(3), stream, strict=False):
        pass
    stream.close()
