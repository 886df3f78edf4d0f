"""Measuring: paired benchmarks, the exactness audit, profiles and the verdict."""
