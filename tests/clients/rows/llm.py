# client: llm
# pip: llm==0.36
"""The command `llm`, by a model in its extra-openai-models.yaml."""

import json


def ask(at, *arguments, key=None, model=None, stream=False, expect="Paris", fails=False):
    folder = at.folder / "llm"
    folder.mkdir(exist_ok=True)
    name = model or at.model
    entry = (
        f"- model_id: here\n  model_name: {name}\n  api_base: {at.url}/v1\n"
        "  api_key_name: here\n  supports_tools: true\n  supports_schema: true\n"
    )
    (folder / "extra-openai-models.yaml").write_text(entry)
    options = () if stream else ("--no-stream",)
    env = {"LLM_USER_PATH": str(folder)}
    options = (*options, "--key", key or at.key)
    return at.program("llm", "-m", "here", *options, *arguments, env=env, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?", stream=True)


def chat_whole(at):
    ask(at, "What is the capital of France?")


def tools(at):
    ask(at, "use the tool", "-T", "llm_version", "--td", expect="llm_version")


def structured_output(at):
    schema = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})
    ask(at, "What is the capital?", "--schema", schema, expect='"city"')


def usage_in_stream(at):
    ask(at, "What is the capital of France?", "--usage", stream=True, expect="output")


def error_401(at):
    ask(at, "x", key="sk-wrong", expect="401", fails=True)


def error_404(at):
    ask(at, "x", model="no-such-model", expect="no-such-model", fails=True)


def retry_429(at):
    ask(at, "x", key=at.limited_key)
