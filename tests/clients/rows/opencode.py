# client: OpenCode
# npm: opencode-ai@1.18.33
"""OpenCode, by the configuration that `slipstream run opencode` makes."""

import json


def ask(at, prompt, *arguments, key=None, model=None, expect="Paris", fails=False):
    name = model or at.model
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Slipstream",
        "options": {"baseURL": f"{at.url}/v1", "apiKey": "{env:SLIPSTREAM_API_KEY}"},
        "models": {name: {"name": name, "limit": {"context": 200_000, "output": 32_000}}},
    }
    model_name = f"slipstream/{name}"
    config = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "allow"},
        "provider": {"slipstream": provider},
        "model": model_name,
        "small_model": model_name,
    }
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "SLIPSTREAM_API_KEY": key or at.key}
    return at.program("opencode", "run", "--format", "json", *arguments, prompt, env=env, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?")


def tools(at):
    call = json.dumps({"command": "echo two birds > seen.txt", "description": "look"})
    ask(at, f"CALL bash {call} END")
    assert (at.folder / "seen.txt").read_text() == "two birds\n"


def reasoning(at):
    ask(at, "think first")


def usage_in_stream(at):
    ask(at, "What is the capital of France?", expect='"output"')
