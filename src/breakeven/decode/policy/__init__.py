"""Draft-length policies: how many tokens a round may draft, 0 included."""
