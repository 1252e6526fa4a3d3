/** The values that filters choose from. */
export const KEY_STATES = ["active", "expired", "revoked"] as const;
export const ROLES = ["owner", "admin", "developer", "viewer", "billing"] as const;
export const TIERS = ["chat", "autocomplete"] as const;
export const DELIVERY_STATES = ["pending", "delivered", "failed"] as const;
export const USAGE_GROUPS = ["project", "key", "model", "tier"] as const;
export const USAGE_GROUP_CHOICES = ["model", "project", "key", "tier", "nothing"] as const;
export const USAGE_FIGURES = ["amount_micro", "requests", "prompt_tokens", "completion_tokens"] as const;
export const PERIODS = ["24h", "7d", "30d", "month", "last-month", "90d"] as const;
export const COMPLETION_GROUPS = ["day", "language", "client", "model", "project"] as const;
export const COMPLETION_PERIODS = ["7d", "30d", "month", "last-month", "90d"] as const;
