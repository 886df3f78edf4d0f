"""Breakeven: speculative decoding that pays, or says why it does not."""

__version__ = "0.1.0"
