# client: LlamaIndex
# pip: llama-index-llms-openai-like==0.8.1 llama-index-embeddings-openai-like==0.4.0
"""LlamaIndex by its class for OpenAI-like servers."""

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

ASKED = [ChatMessage(role="user", content="What is the capital of France?")]


class City(BaseModel):
    """The answer's form."""

    city: str


def chat(at, key=None, **more):
    given = {"api_base": f"{at.url}/v1", "api_key": key or at.key, "model": at.model}
    return OpenAILike(**{**given, "is_chat_model": True, "is_function_calling_model": True, **more})


def chat_streamed(at):
    assert "Paris" in "".join(part.delta or "" for part in chat(at).stream_chat(ASKED))


def chat_whole(at):
    assert "Paris" in chat(at).chat(ASKED).message.content


def tools(at):
    called = []

    def weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "sunny"

    chat(at).predict_and_call([FunctionTool.from_defaults(weather)], user_msg="use the tool")
    assert called == ["Paris"]


def structured_output(at):
    assert chat(at).as_structured_llm(City).chat(ASKED).raw.city == "Paris"


def error_401(at):
    with at.raises(openai.AuthenticationError):
        chat(at, "sk-wrong").chat(ASKED)


def error_404(at):
    with at.raises(openai.NotFoundError):
        chat(at, model="no-such-model").chat(ASKED)


def retry_429(at):
    assert "Paris" in chat(at, at.limited_key).chat(ASKED).message.content


def embeddings(at):
    model = OpenAILikeEmbedding(model_name=at.vectors, api_base=f"{at.url}/v1", api_key=at.key)
    assert [len(each) for each in model.get_text_embedding_batch(["a", "b"])] == [3, 3]


def cancel(at):
    stream = chat(at).stream_chat([ChatMessage(role="user", content=at.forever)])
    for _ in zip(range(3), stream, strict=False):
        pass
    stream.close()
