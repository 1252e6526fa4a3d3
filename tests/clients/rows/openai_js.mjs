// client: OpenAI SDK for JavaScript
// npm: openai@7.59.0 zod@4.6.7
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const ASKED = [{ role: "user", content: "What is the capital of France?" }];
const client = (at, key = at.key) => new OpenAI({ baseURL: `${at.url}/v1`, apiKey: key });
const create = (at, more = {}, key) => client(at, key).chat.completions.create({ model: at.model, messages: ASKED, ...more });

export async function chat_streamed(at) {
  let text = "";
  for await (const chunk of await create(at, { stream: true })) text += chunk.choices[0]?.delta.content ?? "";
  assert.match(text, /Paris/);
}
export async function chat_whole(at) {
  assert.match((await create(at)).choices[0].message.content, /Paris/);
}
export async function tools(at) {
  let city;
  const runner = client(at).chat.completions.runTools({
    model: at.model, stream: true, messages: [{ role: "user", content: "use the tool" }],
    tools: [{ type: "function", function: {
      name: "weather", parse: JSON.parse, function: (given) => ((city = given.city), "sunny"),
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    } }],
  });
  assert.match(await runner.finalContent(), /Paris/);
  assert.equal(city, "Paris");
}
export async function structured_output(at) {
  const form = zodResponseFormat(z.object({ city: z.string() }), "city");
  const answer = await client(at).chat.completions.parse({ model: at.model, messages: ASKED, response_format: form });
  assert.equal(answer.choices[0].message.parsed.city, "Paris");
}
export async function reasoning(at) {
  const { message } = (await create(at, { messages: [{ role: "user", content: "think first" }] })).choices[0];
  assert.match(message.reasoning_content, /capital/);
}
export async function usage_in_stream(at) {
  let usage;
  for await (const chunk of await create(at, { stream: true, stream_options: { include_usage: true } })) usage = chunk.usage;
  assert.ok(usage.completion_tokens > 0);
}
export async function error_401(at) {
  await assert.rejects(create(at, {}, "sk-wrong"), OpenAI.AuthenticationError);
}
export async function error_404(at) {
  await assert.rejects(create(at, { model: "no-such-model" }), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
}
export async function retry_429(at) {
  assert.ok((await create(at, {}, at.limitedKey)).choices.length);
}
export async function embeddings(at) {
  const answer = await client(at).embeddings.create({ model: at.vectors, input: ["a", "b"] });
  assert.deepEqual(answer.data.map((each) => each.embedding.length), [3, 3]);
}
export async function responses(at) {
  const stream = client(at).responses.stream({ model: at.model, input: "What is the capital of France?" });
  assert.match((await stream.finalResponse()).output_text, /Paris/);
}
export async function cancel(at) {
  const stream = await create(at, { stream: true, messages: [{ role: "user", content: at.forever }] });
  let count = 0;
  for await (const _ of stream) if (++count === 3) break;
}
