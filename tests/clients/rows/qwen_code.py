# client: Qwen Code
# npm: @qwen-code/qwen-code@0.24.4
"""Qwen Code, headless, by OpenAI's variables."""

import json


def ask(at, prompt, *arguments, key=None, model=None, expect="Paris", fails=False):
    env = {
        "OPENAI_BASE_URL": f"{at.url}/v1",
        "OPENAI_API_KEY": key or at.key,
        "OPENAI_MODEL": model or at.model,
        "QWEN_TELEMETRY_ENABLED": "false",
    }
    command = ("qwen", "--auth-type", "openai", "-p", prompt, *arguments)
    return at.program(*command, env=env, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?")


def tools(at):
    call = json.dumps({"command": "echo two birds > seen.txt", "description": "look", "is_background": False})
    ask(at, f"CALL run_shell_command {call} END", "--yolo")
    assert (at.folder / "seen.txt").read_text() == "two birds\n"


def reasoning(at):
    ask(at, "think first")


def error_401(at):
    ask(at, "x", key="sk-wrong", expect="401", fails=True)


def error_404(at):
    ask(at, "x", model="no-such-model", expect="no-such-model", fails=True)


def retry_429(at):
    ask(at, "x", key=at.limited_key)
