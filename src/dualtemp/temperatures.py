"""The paper's temperatures: defaults of the losses and of the frameworks alike. Needs no torch."""

TAU_ALPHA = 0.1  # of the vector: the negatives of an anchor against each other
TAU_BETA = 1.0  # of the scalar: the anchors against each other
