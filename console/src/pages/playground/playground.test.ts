import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { NOTHING, phasesSoFar, taken, timingOf, tokensPerSecond } from "./generation";
import { namesOf } from "./models";
import { costMicro } from "./price";
import { curl, python, pythonValue } from "./snippets";

const body = {
  model: "m",
  messages: [{ role: "user", content: 'it\'s "quoted"\nand\\so $HOME `x`' }],
  stream: true,
  stop: null,
};

describe("the same call", () => {
  it("is one argument to a shell, whatever the text holds", () => {
    const command = curl("http://h", "/v1/chat/completions", body);
    const told = execFileSync("sh", ["-c", command.replace(/^curl/, "printf '%s\\n---\\n'")], {
      encoding: "utf8",
    });
    const parts = told.split("\n---\n");
    expect(JSON.parse(parts[parts.indexOf("-d") + 1] ?? "")).toEqual(body);
    expect(command).toContain("$SLIPSTREAM_API_KEY");
  });
  it("is what Python reads", () => {
    const told = execFileSync("python3", ["-c", `import json; print(json.dumps(${pythonValue(body)}))`], {
      encoding: "utf8",
    });
    expect(JSON.parse(told)).toEqual(body);
    const source = python("http://h", "chat", body);
    execFileSync("python3", ["-c", "import ast, sys; ast.parse(sys.stdin.read())"], { input: source });
    expect(source).not.toContain("sk-slip-");
  });
  it("says what kind of client asks, where the page does", () => {
    const headers = { "X-Slipstream-Client": "editor" };
    expect(curl("http://h", "/v1/completions", body, headers)).toContain("-H 'X-Slipstream-Client: editor'");
    const source = python("http://h", "completions", body, headers);
    execFileSync("python3", ["-c", "import ast, sys; ast.parse(sys.stdin.read())"], { input: source });
    expect(source).toContain('"X-Slipstream-Client": "editor"');
  });
});

describe("the models to choose from", () => {
  const served = [
    { id: "talks", tier: "chat" as const },
    { id: "fills", tier: "autocomplete" as const },
    { id: "talks-more", tier: "chat" as const },
  ];
  it("are those of the page's kind", () => {
    expect(namesOf(served, "chat")).toEqual(["talks", "talks-more"]);
    expect(namesOf(served, "autocomplete")).toEqual(["fills"]);
  });
});

describe("a stream", () => {
  const chunks = [
    { choices: [{ delta: {} }] },
    { choices: [{ delta: { content: "Hel" } }] },
    { choices: [{ delta: { content: "lo" }, finish_reason: "stop" }] },
    {
      choices: [],
      usage: { prompt_tokens: 10, completion_tokens: 11, prompt_tokens_details: { cached_tokens: 4 } },
    },
  ];
  const end = chunks.reduce((all, chunk, at) => taken(all, chunk, (at + 1) * 100), NOTHING);
  it("counts the first token from the first text, not from the role", () => {
    expect(end.text).toBe("Hello");
    expect(end.ttftMs).toBe(200);
    expect(end.finish).toBe("stop");
  });
  it("has no speed where all text came within a few milliseconds", () => {
    expect(tokensPerSecond({ ...end, ttftMs: 100, elapsedMs: 119 })).toBeNull();
    expect(tokensPerSecond({ ...end, ttftMs: 100, elapsedMs: 120 })).toBeCloseTo(500);
  });
  it("has the engine's count in the end", () => {
    expect(tokensPerSecond(end)).toBeCloseTo(50);
    const price = {
      input_micro: 1_000_000,
      cached_input_micro: 100_000,
      output_micro: 2_000_000,
    } as Parameters<typeof costMicro>[0];
    expect(costMicro(price, end)).toBeCloseTo(6 * 1 + 4 * 0.1 + 11 * 2);
  });
  it("puts a tool's call together", () => {
    const calls = [
      { choices: [{ delta: { tool_calls: [{ index: 0, function: { name: "add", arguments: "" } }] } }] },
      { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] } }] },
      { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: "1}" } }] } }] },
    ].reduce((all, chunk) => taken(all, chunk, 1), NOTHING);
    expect(calls.toolCalls).toEqual([{ name: "add", arguments: '{"a":1}' }]);
  });
  it("ends with the error that came in it", () => {
    const lost = () => taken({ ...NOTHING, requestId: "req_1" }, { error: { message: "engine lost" } }, 1);
    expect(lost).toThrow("engine lost");
    expect(lost).toThrow(expect.objectContaining({ requestId: "req_1" }));
  });
});

describe("phases, while it runs", () => {
  it("are those that the answer's head tells, and nothing it does not", () => {
    expect(timingOf("auth;dur=0.4, route;dur=1.25, cache;desc=hit, engine;dur=12")).toEqual({
      auth: 0.4,
      route: 1.25,
      engine: 12,
    });
    expect(timingOf(null)).toEqual({});
  });
  it("go on by this browser's clock", () => {
    const head = { ...NOTHING, phasesMs: { engine: 12 }, headMs: 20 };
    expect(phasesSoFar(head)).toEqual({ engine: 12 });
    expect(phasesSoFar({ ...head, ttftMs: 25, elapsedMs: 125 })).toEqual({
      engine: 12,
      first_token: 5,
      decode: 100,
    });
  });
});
