#!/bin/sh
# Asks a running trtllm-serve for what the driver `tensorrt_llm` relies upon and tests/fakes/tensorrt_llm.py imitates,
# but for failures of its own, which nobody can make it have from outside. Needs curl and python3. Exits with the number of behaviours that differ.
#
#   infra/verify/tensorrt_llm.sh http://HOST:8000 [MODEL [MAX_BATCH_SIZE]]
#
# A front (`trtllm-serve disaggregated`) is known by its /cluster_info and asked for what tests/fakes/tensorrt_llm_front.py
# imitates; it lists no models, so MODEL must be given. Ask its context and generation servers as well.
#
# Start the server on a machine with a GPU, as docs/guides/tensorrt-llm.md says; nobody else may ask it meanwhile.
# MODEL: its name at /v1/models. MAX_BATCH_SIZE: as it was started; 1.2 does not tell it.
set -u
url=${1:?usage: $0 URL [MODEL [MAX_BATCH_SIZE]]}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
differ=0

say() { printf '%-7s %s\n' "$1" "$2"; }
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
page() { # an expression over `names`, the metrics without what histograms add, and `text`
    python3 - "$folder/body" "$1" <<'PYTHON'
import re, sys
text = open(sys.argv[1]).read()
found = re.findall(r"^([a-zA-Z_:][\w:]*)", text, re.M)
names = sorted({re.sub(r"_(bucket|count|sum|created)$", "", name) for name in found})
print(eval(sys.argv[2]))
PYTHON
}
cat > "$folder/together.py" <<'PYTHON'
"""Streams that run beside one another. Prints what it finds."""
import http.client, json, sys, threading, time, urllib.parse

url, what, body, many = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])


class Stream(threading.Thread):
    """accepted: the server has it. first: an event has come."""

    def __init__(self, **fields):
        super().__init__(daemon=True)
        self.accepted, self.first = threading.Event(), threading.Event()
        place = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(place.hostname, place.port or 80, timeout=120)
        self.fields = {name: value for name, value in {**body, **fields}.items() if value is not None}
        self.start()

    def run(self):
        try:
            headers = {"content-type": "application/json"}
            self.connection.request("POST", "/v1/chat/completions", json.dumps(self.fields), headers)
            self.socket = self.connection.sock
            answer = self.connection.getresponse()
            self.accepted.set()
            for line in answer:
                if line.startswith(b"data: {"):
                    self.first.set()
        except Exception:
            pass

    def leave(self):
        try:
            self.socket.shutdown(2)
        except (AttributeError, OSError):
            pass


def one_more():
    stream = Stream()
    stream.accepted.wait(60)
    return stream


if what == "leaves":  # one that has begun
    long = one_more()
    long.first.wait(60)
    long.leave()
elif what == "beside":  # a short one to its end, while a long one runs
    long = one_more()
    long.first.wait(60)
    short = Stream(max_tokens=8, min_tokens=None)
    short.join(60)
    long.leave()
elif what == "alone":  # of two, the second begins when the first has left, and not before
    one = one_more()
    one.first.wait(60)
    other = one_more()
    early = other.first.wait(2)
    one.leave()
    print("yes" if other.first.wait(30) and not early else "no")
    other.leave()
elif what == "order":  # all places are taken; of two that wait, the later and higher gets what becomes free
    running = [one_more() for _ in range(many)]
    until = time.monotonic() + 30
    for stream in running:
        stream.first.wait(max(0.0, until - time.monotonic()))
    low, high = Stream(priority=0.1), None
    low.accepted.wait(60)
    high = Stream(priority=0.9)
    high.accepted.wait(60)
    running[0].leave()
    print("yes" if high.first.wait(30) and not low.first.is_set() else "no")
    for stream in [*running, low, high]:
        stream.leave()
PYTHON
together() { python3 "$folder/together.py" "$url" "$@"; } # WHAT BODY HOW_MANY

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
unknown="{$said, \"max_tokens\": 1, \"store\": true}"
flat='d["object"] == "error" and isinstance(d["message"], str) and d["code"] == 400'
python3 - "$model" > "$folder/long" <<'PYTHON'
import json, sys
said = [{"role": "user", "content": "a " * 300_000}]
print(json.dumps({"model": sys.argv[1], "max_tokens": 1, "messages": said}))
PYTHON

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
    same 'a field it does not know is a 400' 400 "$(post /v1/chat/completions "$unknown")"
    same 'which says so in one string' True "$(field 'isinstance(d["error"], str)')"
    same 'cache_salt is taken' 200 "$(post /v1/chat/completions "{$said, \"max_tokens\": 2, \"cache_salt\": \"x\"}")"
    same 'two choices are a 500' 500 "$(post /v1/chat/completions "{$said, \"max_tokens\": 2, \"n\": 2}")"
    same 'that says why' yes "$(grep -q 'more than one choice\|choices, expecting 1' "$folder/body" && echo yes || echo no)"
    same 'a prompt that is too long is a 500' 500 "$(post /v1/chat/completions "@$folder/long")"
    if [ $newer = yes ]; then told=1; else told=0; fi
    same 'that says what its context server said' $told "$(grep -c 'splited_prompt_len\|should not exceed max_num_tokens' "$folder/body")"
    stream "$plain, $usage}"
    same 'a stream ends with [DONE]' True "$(events '"data: [DONE]" in raw')"
    same 'every event tells the usage' True "$(events 'all("usage" in c for c in chunks)')"
    same 'the last event has no choices' True "$(events 'chunks[-1]["choices"] == []')"
    same 'max_tokens is kept' True "$(events 'chunks[-1]["usage"]["completion_tokens"] <= 8')"
    finish
fi
if [ $newer = yes ]; then known=200 gone=404; else known=404 gone=200; fi
same '/perf_metrics' $gone "$(status "$url/perf_metrics")"
same '/server_info' $known "$(status "$url/server_info")"
batch=${3:-$([ $newer = yes ] && field 'd["max_batch_size"]')}

same 'a field it does not know is a 400' 400 "$(post /v1/chat/completions "$unknown")"
if [ $newer = yes ]; then
    same 'which says so in one string' True "$(field 'isinstance(d["error"], str)')"
else
    same 'which says so in a flat body' True "$(field "$flat")"
fi
same 'suffix is a 400' 400 "$(post /v1/completions '{"model": "'"$model"'", "prompt": "a", "suffix": "b", "max_tokens": 1}')"
same 'its own refusals are flat' True "$(field "$flat")"
same 'completions know no cache_salt' 400 "$(post /v1/completions '{"model": "'"$model"'", "prompt": "a", "max_tokens": 1, "cache_salt": "x"}')"
same 'chat does' 200 "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"cache_salt\": \"x\"}")"
same 'tool_choice required is a 400' 400 "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"tool_choice\": \"required\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}")"
if [ $newer = yes ]; then taken=200; else taken=400; fi
same 'priority' $taken "$(post /v1/chat/completions "{$said, \"max_tokens\": 1, \"priority\": 0.6}")"
same 'min_tokens and stop_token_ids are taken' 200 "$(post /v1/chat/completions "{$said, \"max_tokens\": 2, \"min_tokens\": 1, \"stop_token_ids\": [1]}")"
same 'a prompt that is too long is a 400' 400 "$(post /v1/chat/completions "@$folder/long")"
same 'in a known sentence' 1 "$(grep -c 'splited_prompt_len\|should not exceed max_num_tokens' "$folder/body")"
window=$(python3 -c "import re; print((re.findall(r'max_seq_len \((\d+)\)', open('$folder/body').read()) or [0])[0])")

stream "$plain, $usage}"
same 'a stream ends with [DONE]' True "$(events '"data: [DONE]" in raw')"
same "the role's event ends in a space" True "$(events 'raw.split(chr(10))[0].endswith("} ")')"
same 'what is null is left out' True "$(events 'all("finish_reason" not in choice for c in chunks[1:-2] for choice in c["choices"])')"
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

# 1.4 reads its iterations when a request ends, and tells what it read
took=$(curl -s -o "$folder/body" -w '%{time_total}' --max-time 60 "$url/metrics")
if [ $newer = yes ]; then waits=False; else waits=True; fi
same 'iterations are told once none has come for two seconds' $waits "$(python3 -c "print($took >= 1.8)")"
same 'iterations are told (enable_iter_perf_stats)' True "$(field 'len(d) > 0 and {"numActiveRequests", "numQueuedRequests", "maxNumActiveRequests"} <= d[-1].keys()')"
same 'with the memory that is used' True "$(field '{"usedNumBlocks", "maxNumBlocks", "tokensPerBlock"} <= d[-1]["kvCacheStats"].keys()')"
memory=$(field 'd[-1]["kvCacheStats"]["maxNumBlocks"] * d[-1]["kvCacheStats"]["tokensPerBlock"]')
if [ -n "$batch" ]; then
    same 'maxNumActiveRequests is the batch size' "$batch" "$(field 'd[-1]["maxNumActiveRequests"]')"
else
    say skip 'maxNumActiveRequests is the batch size: give the batch size as the third argument'
fi
status "$url/metrics" > /dev/null
same 'and told once' 0 "$(field 'len(d)')"
curl -s --max-time 60 "$url/prometheus/metrics" > "$folder/body"
if [ $newer = yes ]; then
    same 'tokens are counted' True "$(page '{"trtllm_prompt_tokens_total", "trtllm_generation_tokens_total"} <= set(names)')"
    same 'labels name the model' False "$(page '"undefined" in text')"
else
    five='["e2e_request_latency_seconds", "request_queue_time_seconds", "request_success_total", "time_per_output_token_seconds", "time_to_first_token_seconds"]'
    same 'five metrics, none of tokens' True "$(page "names == $five")"
    same 'labels are undefined' True "$(page '"model_name=\"undefined\"" in text and "engine_type=\"undefined\"" in text')"
fi

endless="{$said, \"stream\": true, \"max_tokens\": 4000, \"min_tokens\": 4000, \"ignore_eos\": true}"
at_most() { # requests that ran at a time in what is told now; twice a request ends, for what 1.4 reads behind the first
    post /v1/chat/completions "{$said, \"max_tokens\": 8}" > /dev/null
    post /v1/chat/completions "{$said, \"max_tokens\": 8}" > /dev/null
    curl -s -o "$folder/body" --max-time 20 "$url/metrics" || echo '[]' > "$folder/body"
    field 'max((one["numActiveRequests"] for one in d), default="nothing told")'
}
at_most > /dev/null
together leaves "$endless" 0
sleep 2 # it looks once a second whether a client has gone
same 'who leaves is not generated for two seconds later' 1 "$(at_most)"
together beside "$endless" 0
sleep 2
same 'two that run are told as two' 2 "$(at_most)"

if [ "${window:-0}" = 0 ] || [ -z "$memory" ]; then
    say skip 'without max_tokens one after another: neither the window nor the memory is known'
elif [ "$memory" -ge $((2 * window)) ]; then
    say skip "without max_tokens one after another: the memory holds $memory tokens, two windows of $window"
else
    same 'without max_tokens one after another' yes "$(together alone "{$said, \"stream\": true, \"min_tokens\": 2000}" 0)"
    same 'with max_tokens beside one another' no "$(together alone "{$said, \"stream\": true, \"min_tokens\": 1000, \"max_tokens\": 1000}" 0)"
fi
if [ $newer = yes ]; then
    if [ "${batch:-1000}" -gt 256 ]; then
        say skip 'the higher priority goes first: start it with max_batch_size 64'
    else
        same 'the higher priority goes first' yes "$(together order "{$said, \"stream\": true, \"max_tokens\": 1000, \"min_tokens\": 1000, \"ignore_eos\": true}" "$batch")"
    fi
fi

finish
