"""The paper's analyses of a trained model: entropy and similarity of r_+, hardness within and between anchors."""
