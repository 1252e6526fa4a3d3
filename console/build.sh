#!/usr/bin/env bash
# Install exactly what package-lock.json names, check, test and build the console into gateway/console/dist.
# With --compare: fail where the types or the built files are not what is committed.
set -euo pipefail
cd "$(dirname "$0")"
npm ci --ignore-scripts --no-audit --no-fund
TYPES=$(mktemp --suffix .d.ts)
trap 'rm -f "$TYPES"' EXIT
openapi/generate.sh "$TYPES"
if [ "${1:-}" = --compare ]; then
  diff -q "$TYPES" src/api/schema.d.ts || { echo "the admin API has changed: make console-types, then make console"; exit 1; }
fi
npm run check
npm run test
npm run build
if [ "${1:-}" = --compare ]; then
  [ -z "$(git status --porcelain -- ../gateway/console/dist)" ] \
    || { git status --short -- ../gateway/console/dist; echo "gateway/console/dist is not what its source builds: make console"; exit 1; }
fi
