"""The paper's temperatures: defaults of the losses and of the frameworks alike. Needs no torch."""

TAU_ALPHA = 0.1  # of the vector: the negatives of an anchor against each other
TAU_BETA = 1.0  # of the scalar: the anchors against each other
# At 1e-6 gradients in float32 are off by a hundredth, at 1e-8 by more than themselves: similarities no longer tell keys
# apart. Far above 1e30 they overflow; a tau_beta may be any number above, and is as good as inf.
LEAST_TAU, MOST_TAU = 1e-6, 1e30
