# client: Codex CLI
# npm: @openai/codex@0.171.0
"""Codex, by a provider in its config.toml as docs/guides/agents.md has it."""

import json

CONFIG = """
model = "{model}"
model_provider = "slipstream"
model_context_window = 200000
web_search = "disabled"

[model_providers.slipstream]
name = "Slipstream"
base_url = "{url}/v1"
env_key = "SLIPSTREAM_API_KEY"
wire_api = "responses"
"""


def ask(at, prompt, *arguments, key=None, model=None, expect="Paris", fails=False):
    folder = at.folder / "codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.format(model=model or at.model, url=at.url))
    command = ("codex", "exec", "--skip-git-repo-check", "--json", *arguments, prompt)
    env = {"CODEX_HOME": str(folder), "SLIPSTREAM_API_KEY": key or at.key}
    return at.program(*command, env=env, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?")


def tools(at):
    call = json.dumps({"cmd": "echo two birds > seen.txt"})
    ask(at, f"CALL exec_command {call} END", "--dangerously-bypass-approvals-and-sandbox")
    assert (at.folder / "seen.txt").read_text() == "two birds\n"


def structured_output(at):
    file = at.folder / "schema.json"
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    file.write_text(json.dumps(schema))
    ask(at, "What is the capital?", "--output-schema", str(file), expect="city")


def reasoning(at):
    ask(at, "think first")


def usage_in_stream(at):
    assert '"output_tokens":0' not in ask(at, "What is the capital of France?", expect='"output_tokens"')


def error_401(at):
    ask(at, "x", key="sk-wrong", expect="401", fails=True)


def error_404(at):
    ask(at, "x", model="no-such-model", expect="no-such-model", fails=True)


def responses(at):
    ask(at, "What is the capital of France?")
