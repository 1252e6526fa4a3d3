# client: Claude Code
# npm: @anthropic-ai/claude-code@2.1.197
"""Claude Code, headless, set up by the variables of docs/guides/agents.md."""

import json

QUIET = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def ask(at, prompt, *arguments, key=None, model=None, expect="Paris", fails=False):
    env = {"ANTHROPIC_BASE_URL": at.url, "ANTHROPIC_API_KEY": key or at.key, "ANTHROPIC_MODEL": model or at.model}
    command = ("claude", "-p", prompt, "--output-format", "json", *arguments)
    return at.program(*command, env={**QUIET, **env}, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?")


def tools(at):
    call = json.dumps({"command": "echo two birds > seen.txt", "description": "look"})
    ask(at, f"CALL Bash {call} END", "--allowedTools", "Bash")
    assert (at.folder / "seen.txt").read_text() == "two birds\n"


def structured_output(at):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ask(at, 'CALL StructuredOutput {"city": "Paris"} END', "--json-schema", json.dumps(schema), expect="structured")


def reasoning(at):
    ask(at, "think first")


def usage_in_stream(at):
    assert '"output_tokens":0' not in ask(at, "What is the capital of France?", expect='"output_tokens"')


def error_401(at):
    ask(at, "x", key="sk-wrong", expect="", fails=True)


def error_404(at):
    ask(at, "x", model="no-such-model", expect="no-such-model", fails=True)


def retry_429(at):
    ask(at, "x", key=at.limited_key)


def messages(at):
    ask(at, "What is the capital of France?")
