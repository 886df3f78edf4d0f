"""Drafters: one module per method, whatever proposes tokens and never decides any."""
