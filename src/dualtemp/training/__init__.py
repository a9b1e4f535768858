"""Training: one plain loop, its schedule and optimizers, and checkpoints from which nothing is lost."""
