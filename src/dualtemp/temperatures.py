"""The paper's temperatures: defaults of the losses and of the frameworks alike. Needs no torch."""

TAU_ALPHA = 0.1  # of the vector: weighs an anchor's negatives against each other
TAU_BETA = 1.0  # of the scalar: weighs the anchors against each other
# At 1e-6 float32 gradients are off by one percent, at 1e-8 by more than their own size: similarities no longer tell
# keys apart. Far above 1e30 they overflow; a tau_beta may be larger, and then acts like inf.
LEAST_TAU, MOST_TAU = 1e-6, 1e30
