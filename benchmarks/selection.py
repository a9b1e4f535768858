"""k-center greedy, which `dualtemp select` does not offer, against its ways, on features with labels.

    python benchmarks/selection.py FEATURES.parquet

prints the table of `dualtemp select FEATURES.parquet --simulate` with one way more, "farthest".
"""

import sys
from pathlib import Path

import torch

from dualtemp.encoder.bank import bank_of_file, gather_rows
from dualtemp.encoder.label_file import number_labels
from dualtemp.encoder.selection_simulation import simulate
from dualtemp.report.selection_pages import HEADS, simulation_rows

torch.set_num_threads(1)
rows = gather_rows(bank_of_file(Path(sys.argv[1])).rows)
found = simulate(rows.features, number_labels(rows.labels)[0], ["diverse", "farthest", "typical", "uncertain"])
for row in (HEADS, *simulation_rows(found)):
    print("".join(f"{cell:<18}" for cell in row).rstrip())
