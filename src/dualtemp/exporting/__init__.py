"""The encoder for other programs: weights, ONNX, a model card."""
