#!/bin/sh
# Asks a running trtllm-serve for what the driver `tensorrt_llm` relies upon and tests/fakes/tensorrt_llm.py imitates,
# but for failures of its own, which nobody can make it have from outside. Needs curl and python3. Exits with the number of behaviours that differ.
#
#   infra/verify/tensorrt_llm.sh http://HOST:8000 [MODEL]
#
# A front (`trtllm-serve disaggregated`) is known by its /cluster_info and asked for what tests/fakes/tensorrt_llm_front.py
# imitates; it lists no models, so MODEL must be given. Ask its context and generation servers as well.
#
# Start the server on a machine with a GPU, as docs/guides/tensorrt-llm.md says. MODEL: its name at /v1/models.
set -u
url=${1:?usage: $0 URL [MODEL]}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
differ=0

say() { printf '%-6s %s\n' "$1" "$2"; }
same() { # WHAT EXPECTED FOUND
    if [ "$2" = "$3" ]; then say ok "$1"; else say DIFFERS "$1: expected $2, found $3"; differ=$((differ + 1)); fi
}
status() { curl -s -o "$folder/body" -w '%{http_code}' --max-time 120 "$@"; }
post() { status -H 'content-type: application/json' -d "$2" "$url$1"; }
field() { python3 -c "import json, sys; d = json.load(open('$folder/body')); print($1)" 2>/dev/null; }
stream() { # BODY: events to $folder/events
    curl -sN --max-time 120 -H 'content-type: application/json' -d "$1" "$url/v1/chat/completions" > "$folder/events"
}
events() { # an expression over `chunks`, the decoded events in order, and `raw`, the stream's text
    python3 - "$folder/events" "$1" <<'PYTHON'
import json, sys
raw = open(sys.argv[1]).read()
chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
print(eval(sys.argv[2]))
PYTHON
}

version=$(status "$url/version" > /dev/null && field 'd["version"]')
say version "${version:-not told}"
if [ "$(status "$url/cluster_info")" = 200 ]; then front=yes; else front=no; fi
if [ $front = yes ] && [ -z "${2:-}" ]; then
    say stop 'a front lists no models: give the name of its servers as the second argument'
    exit 64
fi
model=${2:-$(status "$url/v1/models" > /dev/null && field 'd["data"][0]["id"]')}
say model "$model"
case $version in 0.* | 1.0* | 1.1* | 1.2*) newer=no ;; *) newer=yes ;; esac
said='"messages": [{"role": "user", "content": "Count to twenty."}], "model": "'$model'"'
plain="{$said, \"stream\": true, \"max_tokens\": 8"
usage='"stream_options": {"include_usage": true, "continuous_usage_stats": true}'

finish() {
    [ $differ = 0 ] && say all 'as the driver expects' || say "$differ" 'differ: mend engines/drivers/tensorrt_llm.py and the fake together'
    exit $differ
}

same 'health answers 200' 200 "$(status "$url/health")"
if [ $front = yes ]; then
    if [ $newer = yes ]; then page=200; else page=404; fi
    same 'a front has no /metrics' 404 "$(status "$url/metrics")"
    same 'and no /v1/models' 404 "$(status "$url/v1/models")"
    same '/perf_metrics' 200 "$(status "$url/perf_metrics")"
    same '/prometheus/metrics' $page "$(curl -sL -o "$folder/body" -w '%{http_code}' --max-time 60 "$url/prometheus/metrics")"
    if [ $newer = yes ]; then
        same 'which counts requests' yes "$(grep -q 'total_requests' "$folder/body" && echo yes || echo no)"
        same 'and no tokens' no "$(grep -q '^trtllm_prompt_tokens_total' "$folder/body" && echo yes || echo no)"
    fi
    same 'a field it does not know is a 400' 400 "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"store\": true}")"
    same 'cache_salt is taken' 200 "$(post /v1/chat/completions "{$said, \"max_tokens\": 2, \"cache_salt\": \"x\"}")"
    same 'two choices are a 500' 500 "$(post /v1/chat/completions "{$said, \"max_tokens\": 2, \"n\": 2}")"
    same 'that says why' yes "$(grep -q 'more than one choice\|choices, expecting 1' "$folder/body" && echo yes || echo no)"
    same 'what is too long is a 500' 500 "$(post /v1/chat/completions "{$said, \"max_tokens\": 100000000}")"
    if [ $newer = yes ]; then told=1; else told=0; fi
    same 'that says what its context server said' $told "$(grep -c 'The sum of prompt length (.*should not exceed' "$folder/body")"
    stream "$plain, $usage}"
    same 'a stream ends with [DONE]' True "$(events '"data: [DONE]" in raw')"
    same 'every event tells the usage' True "$(events 'all("usage" in c for c in chunks)')"
    same 'the last event has no choices' True "$(events 'chunks[-1]["choices"] == []')"
    same 'max_tokens is kept' True "$(events 'chunks[-1]["usage"]["completion_tokens"] <= 8')"
    finish
fi
if [ $newer = yes ]; then known=200 gone=404; else known=404 gone=200; fi
same '/server_info' $known "$(status "$url/server_info")"
same '/perf_metrics' $gone "$(status "$url/perf_metrics")"

same 'a field it does not know is a 400' 400 "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"store\": true}")"
same 'suffix is a 400' 400 "$(post /v1/completions '{"model": "'"$model"'", "prompt": "a", "suffix": "b", "max_tokens": 1}')"
same 'completions know no cache_salt' 400 "$(post /v1/completions '{"model": "'"$model"'", "prompt": "a", "max_tokens": 1, "cache_salt": "x"}')"
same 'chat does' 200 "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"cache_salt\": \"x\"}")"
same 'tool_choice required is a 400' 400 "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"tool_choice\": \"required\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}")"
if [ $newer = yes ]; then taken=200; else taken=400; fi
same 'priority' $taken "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"priority\": 0.6}")"
same 'min_tokens and stop_token_ids are taken' 200 "$(post /v1/chat/completions "{$said, \"max_tokens\": 2, \"min_tokens\": 1, \"stop_token_ids\": [1]}")"
post /v1/chat/completions "{$said, \"max_tokens\": 100000000}" > /dev/null
same 'what is too long is said in a known sentence' 1 "$(grep -c 'The sum of prompt length (.*should not exceed' "$folder/body")"

stream "$plain, $usage}"
same 'a stream ends with [DONE]' True "$(events '"data: [DONE]" in raw')"
same "the role's event ends in a space" True "$(events 'raw.split(chr(10))[0].endswith("} ")')"
same 'every event tells the usage' True "$(events 'all("usage" in c for c in chunks)')"
same 'the last event has no choices' True "$(events 'chunks[-1]["choices"] == []')"
same 'max_tokens is kept' True "$(events 'chunks[-1]["usage"]["completion_tokens"] <= 8')"
if [ $newer = yes ]; then ids=1; else ids=many; fi
same 'ids of a stream' $ids "$(events '1 if len({c["id"] for c in chunks}) == 1 else "many"')"
curl -sN --max-time 120 -H 'content-type: application/json' -H 'X-TRTLLM-return-metrics: 1' -d "$plain}" \
    "$url/v1/chat/completions" > "$folder/events"
if [ $newer = yes ]; then after=True; else after=False; fi
same 'figures come behind [DONE]' $after "$(events '"event: trtllm.perf_metrics" in raw.partition("[DONE]")[2]')"

long="Prefix $(date +%s) $(python3 -c 'print("of words that are read twice " * 200)')"
cached() { # SALT: tokens of the long prompt that were cached
    post /v1/chat/completions '{"model": "'"$model"'", "max_tokens": 1, "cache_salt": "'"$1"'", "messages": [{"role": "user", "content": "'"$long"'"}]}' > /dev/null
    field '(d["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0) > 0'
}
same 'a prompt is cached by nobody first' False "$(cached one)"
same 'then by its own salt' True "$(cached one)"
same 'and not by another' False "$(cached two)"

status "$url/metrics" > /dev/null
same 'iterations are told (enable_iter_perf_stats)' True "$(field 'len(d) > 0 and {"numActiveRequests", "numQueuedRequests", "maxNumActiveRequests"} <= d[-1].keys()')"
same 'with the memory that is used' True "$(field '{"usedNumBlocks", "maxNumBlocks", "tokensPerBlock"} <= d[-1]["kvCacheStats"].keys()')"
status "$url/metrics" > /dev/null
same 'and told once' True "$(field 'len(d) == 0')"
curl -s --max-time 60 "$url/prometheus/metrics" > "$folder/body"
if [ $newer = yes ]; then counted=yes; else counted=no; fi
same 'tokens are counted' $counted "$(grep -q '^trtllm_prompt_tokens_total' "$folder/body" && grep -q '^trtllm_generation_tokens_total' "$folder/body" && echo yes || echo no)"

status "$url/metrics" > /dev/null
timeout 2 curl -sN -H 'content-type: application/json' -d "{$said, \"stream\": true, \"max_tokens\": 4000, \"min_tokens\": 4000}" \
    "$url/v1/chat/completions" > /dev/null
sleep 4 # it looks once a second whether a client has gone
status "$url/metrics" > /dev/null
same 'who leaves is not generated for' 0 "$(field 'd[-1]["numActiveRequests"] if d else 0')"

finish
