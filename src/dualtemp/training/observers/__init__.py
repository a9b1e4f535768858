"""Who is told of a run as it goes on: the terminal, the page, TensorBoard, Weights & Biases."""
