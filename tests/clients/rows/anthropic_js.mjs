// client: Anthropic SDK for JavaScript
// npm: @anthropic-ai/sdk@1.14.0 zod@4.6.7
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const ASKED = [{ role: "user", content: "What is the capital of France?" }];
const TOOLS = [{ name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];
const client = (at, key = at.key) => new Anthropic({ baseURL: at.url, apiKey: key });
const body = (at, more = {}) => ({ model: at.model, max_tokens: 100, messages: ASKED, ...more });

export async function chat_streamed(at) {
  assert.match(await client(at).messages.stream(body(at)).finalText(), /Paris/);
}
export async function chat_whole(at) {
  assert.match((await client(at).messages.create(body(at))).content[0].text, /Paris/);
}
export async function tools(at) {
  const messages = [{ role: "user", content: "use the tool" }];
  const first = await client(at).messages.stream(body(at, { messages, tools: TOOLS })).finalMessage();
  assert.equal(first.stop_reason, "tool_use");
  assert.deepEqual(first.content[0].input, { city: "Paris" });
  messages.push({ role: "assistant", content: first.content });
  messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: first.content[0].id, content: "sunny" }] });
  assert.equal((await client(at).messages.create(body(at, { messages, tools: TOOLS }))).stop_reason, "end_turn");
}
export async function structured_output(at) {
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
  const answer = await client(at).messages.create(body(at, { output_config: { format: { type: "json_schema", schema } } }));
  assert.equal(JSON.parse(answer.content[0].text).city, "Paris");
}
export async function reasoning(at) {
  const messages = [{ role: "user", content: "think first" }];
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const answer = await client(at).messages.stream(body(at, { messages, thinking, max_tokens: 2048 })).finalMessage();
  assert.match(answer.content[0].thinking, /capital/);
}
export async function usage_in_stream(at) {
  const { usage } = await client(at).messages.stream(body(at)).finalMessage();
  assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0);
}
export async function error_401(at) {
  await assert.rejects(client(at, "sk-wrong").messages.create(body(at)), Anthropic.AuthenticationError);
}
export async function error_404(at) {
  await assert.rejects(client(at).messages.create(body(at, { model: "no-such-model" })), Anthropic.NotFoundError);
}
export async function retry_429(at) {
  assert.ok((await client(at, at.limitedKey).messages.create(body(at))).content.length);
}
export async function messages(at) {
  assert.ok((await client(at).messages.countTokens({ model: at.model, messages: ASKED })).input_tokens > 0);
  assert.equal((await client(at).messages.create(body(at))).type, "message");
}
export async function cancel(at) {
  const stream = client(at).messages.stream(body(at, { max_tokens: 5000, messages: [{ role: "user", content: at.forever }] }));
  let count = 0;
  for await (const event of stream) if (event.type === "content_block_delta" && ++count === 3) break;
}
