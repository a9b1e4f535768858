"""Digests of what short runs of every framework leave behind, to prove that a change leaves the bits as they are.

    python -m benchmarks.digests --out /tmp/before.json       on the commit before the change
    python -m benchmarks.digests --against /tmp/before.json   after it: exit code 1 if a digest differs

One thread, CPU, eight-pixel digits: about a minute. Bits are the same on one kind of machine only, so compare on one.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import dualtemp
from dualtemp.frameworks import framework_named, frameworks

TINY = {"data": "digits", "backbone": "resnet_mini", "batch": 64, "epochs": 2, "subset": 320, "seed": 3}
# Beside each framework with its defaults: the variants of a step, of the encoder's pass, of optimizer and views.
VARIANTS: dict[str, dict[str, Any]] = {
    "simco, tied": {"method": "simco", "tau_beta": "tied"},
    "simco, infinite tau_beta": {"method": "simco", "tau_beta": float("inf")},
    "simco, both views": {"method": "simco", "both_views": True},
    "simmoco, symmetric": {"method": "simmoco", "symmetric": True},
    "simmoco, symmetric, predictor": {"method": "simmoco", "symmetric": True, "predictor": True},
    "moco, last keys": {"method": "moco", "keys": "last"},
    "moco, current keys": {"method": "moco", "keys": "current"},
    "moco, parts of the dictionary": {
        "method": "moco",
        "dictionary_size": 256,
        "vector_size": 64,
        "vector_sampling": "random",
        "scalar_size": 128,
        "scalar_sampling": "earliest",
        "symmetric": True,
        "tau_beta": 1.0,
    },
    "byol, hardness-aware": {"method": "byol", "hardness_aware": True},
    "byol, version 1": {"method": "byol", "computation": 1},
    "simsiam, hardness-aware": {"method": "simsiam", "hardness_aware": True, "tau_weight": 0.01},
    "supervised, noise": {"method": "supervised", "label_noise": 0.4, "tau_beta": float("inf")},
    "byol, chunks": {"method": "byol", "chunk": 16},
    "adamw, clipped": {"method": "simco", "optimizer": "adamw", "lr": 0.001, "clip_gradient": 1.0},
    "lars, recipe simclr": {"method": "simclr", "optimizer": "lars", "recipe": "simclr"},
    "recipe byol": {"method": "byol", "recipe": "byol"},
    "vit": {"method": "simco", "backbone": "vit_tiny", "epochs": 1, "subset": 128},
}


def digest(folder: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """Train, and describe the encoder by its bits and the last epoch by its loss and kNN accuracy."""
    if framework_named(chosen["method"]).learns_from_teacher:
        teacher = folder.with_name(f"{folder.name} teacher")
        dualtemp.train(**TINY, out=teacher, device="cpu", threads=1, quiet=True, page=False)
        chosen = {**chosen, "teacher": str(teacher)}
    last = dualtemp.train(**{**TINY, **chosen}, out=folder, device="cpu", threads=1, quiet=True, page=False)
    weights = hashlib.sha256((folder / "backbone.safetensors").read_bytes()).hexdigest()
    return {"backbone": weights[:16], "loss": last["loss"], "knn_top1": last.get("knn_top1")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the digests as JSON")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with digests that --out wrote")
    parser.add_argument("--only", default="", metavar="WORD", help="runs whose name holds this word")
    given = parser.parse_args()
    before = json.loads(given.against.read_text()) if given.against else {}
    runs = {name: {"method": name} for name in frameworks()} | VARIANTS
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, chosen) in enumerate(runs.items()):
            if given.only in name:
                found[name] = digest(Path(folder) / str(number), chosen)
                remark = "" if name not in before else "  same" if found[name] == before[name] else "  DIFFERS"
                print(f"{found[name]['backbone']}  loss {found[name]['loss']:.6f}  {name}{remark}", flush=True)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    differing = [name for name in found if name in before and found[name] != before[name]]
    missing = [name for name in before if given.only in name and name not in found]
    if missing:
        print(f"no longer run: {', '.join(missing)}", file=sys.stderr)
    return 1 if differing or missing else 0


if __name__ == "__main__":
    sys.exit(main())
