#!/usr/bin/env bash
# Write the client's types (or, with an argument, that file) anew from the gateway's code.
# openapi-typescript needs TypeScript 5, the console is checked by 7: hence a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUTPUT=$(realpath -m "${1:-console/src/api/schema.d.ts}")
DOCUMENT=$(mktemp --suffix .json)
trap 'rm -f "$DOCUMENT"' EXIT
"${PYTHON:-.venv/bin/python}" console/openapi/document.py > "$DOCUMENT"
cd console/openapi
[ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund
node_modules/.bin/openapi-typescript "$DOCUMENT" --exclude-deprecated --default-non-nullable=false --output "$OUTPUT"
