"""Where prompts come from: one module per source, and the registry of them."""
