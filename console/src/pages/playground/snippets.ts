/** The same call as a shell command and as Python. The key is read from the environment: a snippet is copied about. */

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

export function curl(
  origin: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): string {
  return [
    `curl ${shellQuoted(`${origin}${path}`)} \\`,
    `  -H "Authorization: Bearer $SLIPSTREAM_API_KEY" \\`,
    `  -H "Content-Type: application/json" \\`,
    ...Object.entries(headers).map(([name, value]) => `  -H ${shellQuoted(`${name}: ${value}`)} \\`),
    `  --no-buffer \\`,
    `  -d ${shellQuoted(JSON.stringify(body, null, 2))}`,
  ].join("\n");
}

/** A value as Python writes it. */
export function pythonValue(value: unknown, indent = 0): string {
  const inner = " ".repeat(indent + 4);
  const outer = " ".repeat(indent);
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return `[\n${value.map((each) => `${inner}${pythonValue(each, indent + 4)},\n`).join("")}${outer}]`;
  }
  if (typeof value === "object") {
    const entries = Object.entries(value);
    if (entries.length === 0) return "{}";
    return `{\n${entries
      .map(([name, each]) => `${inner}${JSON.stringify(name)}: ${pythonValue(each, indent + 4)},\n`)
      .join("")}${outer}}`;
  }
  return JSON.stringify(value);
}

export function python(
  origin: string,
  kind: "chat" | "completions",
  body: Record<string, unknown>,
  headers: Record<string, string> = {},
): string {
  const named = Object.keys(headers).length > 0 ? { ...body, extra_headers: headers } : body;
  const call = kind === "chat" ? "client.chat.completions.create" : "client.completions.create";
  const piece = kind === "chat" ? 'chunk.choices[0].delta.content or ""' : "chunk.choices[0].text";
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(`${origin}/v1`)}, api_key=os.environ["SLIPSTREAM_API_KEY"])`,
    `stream = ${call}(`,
    ...Object.entries(named).map(([name, value]) => `    ${name}=${pythonValue(value, 4)},`),
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    `        print(${piece}, end="", flush=True)`,
  ].join("\n");
}

/** A first request with a new key, ready to paste; it holds the secret, which is shown only once. */
export function firstRequest(origin: string, secret: string, model: { id: string; tier: string }): string {
  const [path, body] =
    model.tier === "chat"
      ? [
          "/v1/chat/completions",
          {
            model: model.id,
            messages: [{ role: "user", content: "What is the capital of France?" }],
            stream: true,
          },
        ]
      : ["/v1/completions", { model: model.id, prompt: "def add(a, b):\n    return ", max_tokens: 16 }];
  return [
    `curl ${shellQuoted(`${origin}${path}`)} --no-buffer \\`,
    `  -H "Authorization: Bearer ${secret}" \\`,
    `  -H "Content-Type: application/json" \\`,
    `  -d ${shellQuoted(JSON.stringify(body))}`,
  ].join("\n");
}
