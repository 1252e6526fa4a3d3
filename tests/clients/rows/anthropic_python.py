# client: Anthropic SDK for Python
# pip: anthropic==2.14.0 pydantic==2.14.4
"""Anthropic's library for Python."""

import anthropic
import pydantic

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class City(pydantic.BaseModel):
    """The answer's form."""

    city: str


def client(at, key=None):
    return anthropic.Anthropic(base_url=at.url, api_key=key or at.key)


def chat_streamed(at):
    with client(at).messages.stream(model=at.model, max_tokens=100, messages=ASKED) as stream:
        assert "Paris" in "".join(stream.text_stream)


def chat_whole(at):
    assert "Paris" in client(at).messages.create(model=at.model, max_tokens=100, messages=ASKED).content[0].text


def tools(at):
    asked = [{"role": "user", "content": "use the tool"}]
    with client(at).messages.stream(model=at.model, max_tokens=100, messages=asked, tools=[TOOL]) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    [call] = first.content
    assert call.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    asked += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    answer = client(at).messages.create(model=at.model, max_tokens=100, messages=asked, tools=[TOOL])
    assert answer.stop_reason == "end_turn"


def structured_output(at):
    parsed = client(at).messages.parse(model=at.model, max_tokens=100, messages=ASKED, output_format=City)
    assert parsed.parsed_output.city == "Paris"


def reasoning(at):
    asked = [{"role": "user", "content": "think first"}]
    with client(at).messages.stream(
        model=at.model, max_tokens=2048, messages=asked, thinking={"type": "enabled", "budget_tokens": 1024}
    ) as stream:
        thought, text = stream.get_final_message().content
    assert "capital" in thought.thinking
    assert "Paris" in text.text


def usage_in_stream(at):
    with client(at).messages.stream(model=at.model, max_tokens=100, messages=ASKED) as stream:
        usage = stream.get_final_message().usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


def error_401(at):
    with at.raises(anthropic.AuthenticationError, lambda error: error.body["error"]["type"] == "authentication_error"):
        client(at, "sk-wrong").messages.create(model=at.model, max_tokens=10, messages=ASKED)


def error_404(at):
    with at.raises(anthropic.NotFoundError, lambda error: error.body["error"]["type"] == "not_found_error"):
        client(at).messages.create(model="no-such-model", max_tokens=10, messages=ASKED)


def retry_429(at):
    assert client(at, at.limited_key).messages.create(model=at.model, max_tokens=10, messages=ASKED).content


def messages(at):
    counted = client(at).messages.count_tokens(model=at.model, messages=ASKED).input_tokens
    assert counted > 0
    assert client(at).messages.create(model=at.model, max_tokens=100, messages=ASKED).type == "message"
    assert at.model in [model.id for model in client(at).models.list()]


def cancel(at):
    with client(at).messages.stream(
        model=at.model, max_tokens=5000, messages=[{"role": "user", "content": at.forever}]
    ) as stream:
        for _ in zip(range(3), stream.text_stream, strict=False):
            pass
