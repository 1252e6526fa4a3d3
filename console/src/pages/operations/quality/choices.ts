/** The values that these pages' filters choose from. */
export const RELEASE_STATES = ["waiting", "running", "held", "promoted", "rolled_back"] as const;
export const JOB_STATUSES = ["queued", "running", "done", "failed", "cancelled"] as const;
export const EVAL_VIEWS = ["runs", "comparisons", "slices"] as const;
/** Items whose score is lower; the parameter's text is the bound. */
export const BELOW = ["1", "0.5"] as const;
export const MOVED = ["lost", "won", "all"] as const;
export const CHANGE_METRICS = ["ttft", "tpot", "longest_gap"] as const;
export const STATISTICS = ["p50", "p95", "p99"] as const;
