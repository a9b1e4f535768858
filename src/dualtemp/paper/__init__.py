"""Every table and figure of the paper, declared as runs; nothing here is imported before it is needed.

artifacts/*.yaml, scales.yaml and claims.yaml declare tables, figures, scales and claims; the modules read, run and
judge what they declare.
"""
