#!/usr/bin/env bash
# Install exactly what package-lock.json names, check, test and build the console into control/console/dist.
# Fail where the types are not those of the admin API; with --compare also where the built files are not what is committed.
# Without, note what was built from what, which a test holds against the source.
set -euo pipefail
cd "$(dirname "$0")"
npm ci --ignore-scripts --no-audit --no-fund
TYPES=$(mktemp --suffix .d.ts)
trap 'rm -f "$TYPES"' EXIT
openapi/generate.sh "$TYPES"
diff -q "$TYPES" src/api/schema.d.ts || { echo "the admin API has changed: make console-types, then make console"; exit 1; }
npm run check
npm run test
npm run build
if [ "${1:-}" != --compare ]; then
  cd .. && "${PYTHON:-.venv/bin/python}" -m tests.console.built_from
else
  [ -z "$(git status --porcelain -- ../control/console/dist)" ] \
    || { git status --short -- ../control/console/dist; echo "control/console/dist is not what its source builds: make console"; exit 1; }
fi
