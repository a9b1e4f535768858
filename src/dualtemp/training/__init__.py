"""Training: one plain loop, its schedule and optimisers, and a run folder from which nothing is lost."""
