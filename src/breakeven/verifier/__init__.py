"""The verifier: loading, the lean decoder, the fallback, the cache, row layouts, row-gated LoRA."""
