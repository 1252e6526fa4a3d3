"""Names of spans' attributes.

Attributes of HTTP, the server and errors are OpenTelemetry's semantic conventions. Those of generative AI have moved to
open-telemetry/semantic-conventions-genai, are still in development, and have no package yet; a test compares them with
the last package that had them. Slipstream's own begin with `slipstream.`.
"""

from __future__ import annotations

REQUEST_METHOD = "http.request.method"
ROUTE = "http.route"
STATUS_CODE = "http.response.status_code"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
MAX_TOKENS = "gen_ai.request.max_tokens"
CHOICES = "gen_ai.request.choice.count"
STREAM = "gen_ai.request.stream"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
CHAT, TEXT_COMPLETION = "chat", "text_completion"

REQUEST_ID = "slipstream.request_id"
ORGANIZATION_ID = "slipstream.organization_id"
PROJECT_ID = "slipstream.project_id"
ENDPOINT = "slipstream.endpoint"
TIER = "slipstream.tier"
ATTEMPT = "slipstream.attempt"
ATTEMPTS = "slipstream.attempts"
FINISH = "slipstream.finish"
REPLICA = "slipstream.replica"
POOL = "slipstream.pool"
DRIVER = "slipstream.driver"
REASON = "slipstream.reason"
LEASE_ID = "slipstream.lease_id"
SERVED_MODEL = "slipstream.served_model"
PROMPT_TOKENS = "slipstream.prompt_tokens"
PROMPT_TOKENS_CACHED = "slipstream.cached_tokens"
RETRACTIONS = "slipstream.retractions"
GENERATED_TOKENS = "slipstream.generated_tokens"
"""An engine's own counts have separate names, because gen_ai.usage, which is summed, belongs to the request's span
alone."""
