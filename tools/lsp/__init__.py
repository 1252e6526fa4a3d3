"""`slipstream tools lsp`: the language server. Each editor starts a process, which calls a gateway over HTTP."""
