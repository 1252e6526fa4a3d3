// One request through Continue's own client. stdin: {method, apiBase, apiKey, requestOptions, body}; stdout: {text, finish_reason}.
import { constructLlmApi } from "@continuedev/openai-adapters";

const asked = JSON.parse(await new Response(process.stdin).text());
const { apiBase, apiKey, requestOptions } = asked;
const api = constructLlmApi({ provider: "openai", apiBase, apiKey, requestOptions });
const { signal } = new AbortController();
let text = "";
let finish_reason = null;
for await (const chunk of api[asked.method](asked.body, signal)) {
  const [choice] = chunk.choices;
  if (choice === undefined) continue; // the usage at the end
  text += (choice.delta ? choice.delta.content : choice.text) ?? "";
  finish_reason = choice.finish_reason ?? finish_reason;
}
process.stdout.write(JSON.stringify({ text, finish_reason }));
