"""Training: one loop for all drafters, an objective per method."""
