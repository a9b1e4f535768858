"""What the paper looks at in a trained model: entropy and similarity of r_+, hardness within and between anchors."""
