// Runs one row in its client's own environment, as child.py does for Python: `node child.mjs ROW.mjs`.
import { pathToFileURL } from "node:url";
import { basename } from "node:path";

const LIMIT_MS = 100_000;
const env = process.env;
const path = process.argv[2];
const name = basename(path, ".mjs");
const row = await import(pathToFileURL(path));

function at(feature) {
  const url = `${env.MATRIX_URL}/${name}/${feature}`;
  return {
    url, key: env.MATRIX_KEY, limitedKey: env.MATRIX_LIMITED_KEY, model: env.MATRIX_MODEL, vectors: env.MATRIX_VECTORS,
    forever: `count forever for ${name}`,
    async exhaust() {
      const body = JSON.stringify({ model: env.MATRIX_MODEL, max_tokens: 1, messages: [{ role: "user", content: "x" }] });
      const headers = { authorization: `Bearer ${env.MATRIX_LIMITED_KEY}`, "content-type": "application/json" };
      for (let i = 0; i < 200; i++) {
        const answer = await fetch(`${env.MATRIX_URL}/${name}/exhausting/v1/chat/completions`, { method: "POST", headers, body });
        await answer.text();
        if (answer.status === 429) return;
      }
      throw new Error("the limited key has no limit");
    },
  };
}

for (const feature of env.MATRIX_FEATURES.split(" ")) {
  if (!row[feature]) continue;
  let reason = null;
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not done after ${LIMIT_MS} ms`)), LIMIT_MS); });
  try {
    await Promise.race([row[feature](at(feature)), late]);
  } catch (error) {
    reason = `${error?.name ?? "Error"}: ${error?.message ?? error}`.slice(0, 400);
  }
  clearTimeout(timer);
  console.log(JSON.stringify({ feature, reason }));
}
process.exit(0);
