"""From which feature spread on an encoder has collapsed. Needs no torch: pages ask too."""

# Feature spread below which all images look the same to the encoder. Isotropic features have 1; measured: untrained
# encoders 0.06 (resnet50) to 0.7, transformers that collapse 0.005 to 0.016.
COLLAPSED = 0.02
