"""The language server: `slipstream tools lsp`, started by an editor, one process each, talking to a gateway over HTTP.

server.py        what the editor asks, and who answers it
documents.py     the texts the editor has open
gap.py           the two sides of the cursor, cut to a bound; file_path.py: what their file is called
completer.py     one document's completion: memory, debounce, request, retry
memory.py        answers kept, and typed through
gateway.py       the HTTP client
config.py        settings; key.py: where the API key comes from
"""
