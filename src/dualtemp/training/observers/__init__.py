"""Observers of a run as it trains: the terminal, TensorBoard, Weights & Biases."""
