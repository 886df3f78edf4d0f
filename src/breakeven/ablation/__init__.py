"""Ablations: many variants of a drafter, trained and decoded alike, and what each is worth."""
