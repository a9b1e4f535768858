"""Every table and figure of the paper as declared runs; nothing here is imported before it is needed.

artefacts/*.yaml, scales.yaml and claims.yaml say what there is; the modules read, run and judge it.
"""
