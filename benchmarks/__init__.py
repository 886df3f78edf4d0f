"""Benchmarks of the engine; each is a command: ``python -m benchmarks.cost_curve --help``."""
