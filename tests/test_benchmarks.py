"""The benchmark of losses compares like with like, and runs where a peer is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dualtemp.torchvision_operators import declare_missing_operators

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def compared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import compared_losses  # pyright: ignore

    return compared_losses


@pytest.mark.parametrize("ours", ["dualtemp", "nt_xent", "equal", "equal, adaptive", "memory", "two_towers"])
def test_every_peer_has_the_gradient_of_the_loss_that_it_is_compared_with(ours: str, monkeypatch) -> None:
    losses = compared(monkeypatch)
    declare_missing_operators()
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(12, 16, generator=g, requires_grad=True) for _ in range(2))

    def direction(name: str) -> torch.Tensor:
        gradient = torch.cat(torch.autograd.grad(losses.LOSSES[name]()(q, k), (q, k)))
        return gradient / gradient.norm()

    tried = 0
    for peer in losses.PEERS[ours]:
        try:
            theirs = direction(peer)
        except ImportError:
            continue
        tried += 1
        torch.testing.assert_close(direction(ours), theirs, rtol=1e-4, atol=1e-6)
    if not tried:
        pytest.skip("the peer is not installed (extra: peers)")


@pytest.mark.slow
def test_the_benchmark_of_losses_prints_ratios_and_leaves_out_what_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "open_clip.py").write_text("raise ImportError('no open_clip here')")
    words = ["--sizes", "8", "--seconds", "0.05", "--only", "plain", "dualtemp", "open_clip ClipLoss"]
    script = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.path.insert(0, {str(BENCHMARKS)!r}); "
    script += f"sys.argv = ['loss.py', *{words}]; runpy.run_path({str(BENCHMARKS / 'loss.py')!r}, run_name='__main__')"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    _, missing, plain, ours = said.splitlines()
    assert missing.split(":")[0].strip() == "open_clip ClipLoss"
    assert "left out" in missing
    of_plain, of_ours = (float(line.split()[2]) for line in (plain, ours))
    ratio = float(ours.partition("plain: ")[2].split()[0])
    assert ratio == pytest.approx(of_ours / of_plain, abs=0.02)


def test_the_benchmark_of_indexes_keeps_vectors_only_where_it_is_told_to(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import index  # pyright: ignore

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(index, "make_views", lambda run, data, count, folder: folder.mkdir(parents=True))
    monkeypatch.setattr(index, "measured", lambda *arguments: iter(()))
    monkeypatch.setattr(sys, "argv", ["index.py", "run"])
    index.main()
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(sys, "argv", ["index.py", "run", "--work", "kept"])
    index.main()
    assert (tmp_path / "kept" / "views").is_dir()
