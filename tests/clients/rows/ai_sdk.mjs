// client: Vercel AI SDK
// npm: ai@7.0.173 @ai-sdk/openai-compatible@2.0.92 @ai-sdk/openai@3.0.141 @ai-sdk/anthropic@3.0.140 zod@4.6.7
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const PROMPT = "What is the capital of France?";
const provider = (at, key = at.key) => createOpenAICompatible({
  name: "slipstream", baseURL: `${at.url}/v1`, apiKey: key, includeUsage: true, supportsStructuredOutputs: true,
});

export async function chat_streamed(at) {
  assert.match(await streamText({ model: provider(at)(at.model), prompt: PROMPT }).text, /Paris/);
}
export async function chat_whole(at) {
  assert.match((await generateText({ model: provider(at)(at.model), prompt: PROMPT })).text, /Paris/);
}
export async function tools(at) {
  let city;
  const weather = tool({ inputSchema: z.object({ city: z.string() }), execute: (given) => ((city = given.city), "sunny") });
  const result = streamText({ model: provider(at)(at.model), prompt: "use the tool", tools: { weather }, stopWhen: stepCountIs(3) });
  assert.match(await result.text, /Paris/);
  assert.equal(city, "Paris");
}
export async function structured_output(at) {
  const { object } = await generateObject({ model: provider(at)(at.model), prompt: PROMPT, schema: z.object({ city: z.string() }) });
  assert.equal(object.city, "Paris");
}
export async function reasoning(at) {
  const result = streamText({ model: provider(at)(at.model), prompt: "think first" });
  assert.match(await result.reasoningText, /capital/);
}
export async function usage_in_stream(at) {
  const usage = await streamText({ model: provider(at)(at.model), prompt: PROMPT }).usage;
  assert.ok(usage.outputTokens > 0);
}
export async function error_401(at) {
  await assert.rejects(generateText({ model: provider(at, "sk-wrong")(at.model), prompt: PROMPT }), (error) => error.statusCode === 401);
}
export async function error_404(at) {
  await assert.rejects(generateText({ model: provider(at)("no-such-model"), prompt: PROMPT }), (error) => error.statusCode === 404);
}
export async function retry_429(at) {
  assert.match((await generateText({ model: provider(at, at.limitedKey)(at.model), prompt: PROMPT })).text, /Paris/);
}
export async function embeddings(at) {
  const { embeddings } = await embedMany({ model: provider(at).embeddingModel(at.vectors), values: ["a", "b"] });
  assert.deepEqual(embeddings.map((each) => each.length), [3, 3]);
}
export async function responses(at) {
  const model = createOpenAI({ baseURL: `${at.url}/v1`, apiKey: at.key })(at.model);
  assert.match(await streamText({ model, prompt: PROMPT }).text, /Paris/);
}
export async function messages(at) {
  const model = createAnthropic({ baseURL: `${at.url}/v1`, apiKey: at.key })(at.model);
  assert.match(await streamText({ model, prompt: PROMPT }).text, /Paris/);
}
export async function cancel(at) {
  const leaving = new AbortController();
  const result = streamText({ model: provider(at)(at.model), prompt: at.forever, abortSignal: leaving.signal, onError() {} });
  let count = 0;
  try {
    for await (const _ of result.textStream) if (++count === 3) leaving.abort();
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}
