"""Decoding: the round, where an answer ends, batches of requests, the generator."""
