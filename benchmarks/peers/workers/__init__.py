"""One program per engine; each runs in that engine's environment and answers on its channel."""
