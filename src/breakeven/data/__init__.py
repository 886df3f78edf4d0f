"""The data room: prompts, the data contract, and the verifier's own continuations."""
