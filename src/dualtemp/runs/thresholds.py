"""Thresholds that measurements and pages share: collapse, and the hardest tenth. Needs no torch."""

# Feature spread below which all images look the same to the encoder. Isotropic features have 1; measured: untrained
# encoders 0.06 (resnet50) to 0.7, transformers that collapse 0.005 to 0.016.
COLLAPSED = 0.02


def hardest_tenth(anchors: int) -> int:
    """Number of anchors in the hardest tenth of a step, rounded up."""
    return -(-anchors // 10)
