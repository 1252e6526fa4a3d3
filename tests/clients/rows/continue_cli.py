# client: Continue CLI
# npm: @continuedev/cli@1.5.47
"""Continue's `cn`, headless, by a configuration file."""

import json


def ask(at, prompt, *, key=None, model=None, expect="Paris", fails=False):
    served = {"name": "Slipstream", "provider": "openai", "model": model or at.model, "roles": ["chat"]}
    served |= {"apiBase": f"{at.url}/v1", "apiKey": key or at.key}
    config = at.folder / "config.yaml"  # JSON is YAML
    config.write_text(json.dumps({"name": "Slipstream", "version": "1.0.0", "schema": "v1", "models": [served]}))
    env = {"CONTINUE_TELEMETRY_ENABLED": "0"}
    return at.program("cn", "-p", "--auto", "--config", str(config), prompt, env=env, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?")


def tools(at):
    call = json.dumps({"command": "echo two birds > seen.txt"})
    ask(at, f"CALL Bash {call} END")
    assert (at.folder / "seen.txt").read_text() == "two birds\n"


def error_401(at):
    ask(at, "x", key="sk-wrong", expect="401", fails=True)


def error_404(at):
    ask(at, "x", model="no-such-model", expect="no-such-model", fails=True)


def retry_429(at):
    ask(at, "x", key=at.limited_key)
