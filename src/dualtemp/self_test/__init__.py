"""What `dualtemp doctor --gpu` measures: whether a device computes the losses right, how fast, in how much memory."""
