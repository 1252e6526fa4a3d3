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
