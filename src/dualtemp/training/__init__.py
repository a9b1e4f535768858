"""Training: one plain loop, its schedule, and resuming from checkpoints to the same bits."""
