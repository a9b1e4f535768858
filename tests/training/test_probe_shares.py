"""The probe of several processes, when their shares of the labels differ, as in sets with few labels."""

from pathlib import Path

import pytest
import torch

from dualtemp import distributed
from dualtemp.evaluation.probe import OnlineProbe


def uneven_probe() -> dict[str, torch.Tensor]:
    """Three steps of a probe whose processes bring 5 and 2, 0 and 4, 0 and 0 labelled features."""
    torch.manual_seed(0)
    probe = OnlineProbe(6, 3)
    for shares in ((5, 2), (0, 4), (0, 0)):
        features, labels = torch.randn(sum(shares), 6), torch.randint(3, (sum(shares),))
        mine = slice(None)
        if distributed.world_size() > 1:
            mine = slice(0, shares[0]) if distributed.rank() == 0 else slice(shares[0], None)
        probe.learn(features[mine], labels[mine], 0.3)
    return probe.state_dict()


@pytest.mark.slow
def test_a_probe_learns_the_same_however_the_labels_fall_to_the_processes(tmp_path: Path) -> None:
    import several_processes  # not above: the processes that read this file know nothing of the others

    alone = uneven_probe()
    assert all(x.isfinite().all() for x in alone.values())
    for shared in several_processes.run(__file__, "uneven_probe", 2, tmp_path / "out"):
        for name, value in alone.items():
            torch.testing.assert_close(shared[name], value, rtol=1e-5, atol=1e-6)
