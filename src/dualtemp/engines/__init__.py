"""What carries out independent tasks: processes of this machine, a Slurm or a Ray cluster. Needs no torch."""
