"""The same weights, prompts and threads in other engines: ``python -m benchmarks.peers``."""
