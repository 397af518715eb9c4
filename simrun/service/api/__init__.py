"""The HTTP API: one module per resource; parse, one call, answer."""
