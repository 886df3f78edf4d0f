"""The paper's protocol from end to end: training, two measurement paths, ablations, tables."""
