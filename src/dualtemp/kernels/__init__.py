"""Fused kernels for accelerators, an optional extra: `choice` says where they are used, and needs torch alone."""
