"""The fused kernels as machine code for GPUs, which needs none: true float32, nothing spilled, and they fit."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="triton is not installed")

PROGRAM = """
import json, re, subprocess, sys, tempfile
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from dualtemp.kernels import log_sum_exp as kernel

POINTERS = "a b result lse_alpha lse_beta row_lse row_weight column_lse column_weight".split()

def compiled(function, blocks, capability, **constants):
    constants |= dict(HAS_OWN=True, LEARNED=False, ROWS=blocks.rows, KEYS=blocks.keys, WIDTH=blocks.width)
    names = function.arg_names
    kinds = {n: "constexpr" if n in constants else "*fp32" if n in POINTERS else
             "fp32" if n in ("scale", "ratio") else "i32" for n in names}
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n in names if n in POINTERS or n.startswith("stride")}
    source = ASTSource(function, kinds, {(names.index(n),): v for n, v in constants.items()}, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": blocks.warps})
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        Path(file.name).write_text(made.asm["ptx"])
        arch = f"sm_{capability}" + "a" * (capability == 90)
        ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
        words = [ptxas, "-v", f"-arch={arch}", file.name, "-o", "/dev/null"]
        told = subprocess.run(words, capture_output=True, text=True)
    return {"ptx": made.asm["ptx"], "shared": made.metadata.shared,
            "spilled": int(re.search(r"(\\d+) bytes spill stores", told.stderr)[1]),
            "registers": int(re.search(r"Used (\\d+) registers", told.stderr)[1])}

capability, D = int(sys.argv[1]), int(sys.argv[2])
width = min(kernel.WIDEST_SUM, D)
weigh = kernel.WEIGH if width <= 128 else kernel.WEIGH._replace(warps=2 * kernel.WEIGH.warps)
print(json.dumps([
    compiled(kernel._reduce_rows, kernel.REDUCE, capability, TWO=True, D=D),
    compiled(kernel._weigh_keys, weigh, capability, BY_ROW=True, BY_COLUMN=True, D=D, OUT=width),
]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [128, 512])
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_for_a_gpu_without_rounding_products_or_spilling_registers(
    capability: int, width: int, tmp_path
) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-c", PROGRAM, str(capability), str(width)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout):
        assert "fma.rn.f32" in found["ptx"]
        assert "mma" not in found["ptx"]  # tensor cores would round to TF32
        assert found["spilled"] == 0
        assert found["shared"] <= 48 << 10  # what every block may have
        assert found["registers"] * 128 * (2 if width > 128 else 1) <= 1 << 16
