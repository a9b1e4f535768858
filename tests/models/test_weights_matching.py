"""Which tensor of a file is which of a network: names, else order and shape; what could be guessed wrong is refused."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dualtemp.models.weights_matching import Misfit, match_weights


def network(widths: list[int], seed: int = 0) -> nn.Sequential:
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for before, after in zip([3, *widths], widths, strict=False):
            norm = nn.BatchNorm2d(after)
            for value in norm.state_dict().values():
                if value.is_floating_point():
                    value.normal_()
            layers += [nn.Conv2d(before, after, 3, bias=False), norm]
    return nn.Sequential(*layers)


def renamed(state: dict[str, Tensor], call: Callable[[int, str], str]) -> dict[str, Tensor]:
    return {call(i, name): value for i, (name, value) in enumerate(state.items())}


def foreign(i: int, name: str) -> str:
    """Names that share nothing with the network's but the kind, in no alphabetical order."""
    return f"_block{'ba'[i % 2]}{i}._part.{name.rpartition('.')[2]}"


@given(widths=st.lists(st.integers(1, 4), min_size=1, max_size=5), classes=st.integers(0, 3))
def test_other_names_in_the_same_order_give_every_tensor_its_place(widths: list[int], classes: int) -> None:
    theirs, own = network(widths, 1).state_dict(), network(widths, 2).state_dict()
    file = renamed(theirs, foreign)
    if classes:
        file |= {"_top.weight": torch.zeros(classes, widths[-1]), "_top.bias": torch.zeros(classes)}
    fit = match_weights(file, own)
    assert fit.by_order
    wanted = [name for name in own if not name.endswith("num_batches_tracked")]
    assert list(fit.tensors) == wanted
    assert all(torch.equal(fit.tensors[name], theirs[name]) for name in wanted)


@given(widths=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_two_kinds_exchanged_are_never_taken_for_each_other(widths: list[int], data: st.DataObject) -> None:
    items = list(renamed(network(widths).state_dict(), foreign).items())
    norms = [i for i, (name, _) in enumerate(items) if name.endswith("running_mean")]
    i = data.draw(st.sampled_from(norms))
    items[i], items[i + 1] = items[i + 1], items[i]  # the same shape, and another meaning
    with pytest.raises(Misfit, match=r"running_var is \(\d+,\) in the file, \d\.running_mean"):
        match_weights(dict(items), network(widths).state_dict())


def test_neighbors_of_one_shape_whose_names_tell_no_kind_are_refused() -> None:
    state = network([4]).state_dict()
    file = renamed(state, lambda i, name: f"tensor{9 - i}")
    with pytest.raises(Misfit, match=r"tensor8 \(4,\) may be 1.weight or its neighbor"):
        match_weights(file, state)


def test_alphabetical_names_have_lost_the_order_and_fit_only_where_no_shape_comes_twice() -> None:
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1)).state_dict()
    shuffled = {
        "a.weight": own["1.weight"],
        "b.bias": own["0.bias"],
        "c.weight": own["0.weight"],
        "d.bias": own["1.bias"],
    }
    fit = match_weights(shuffled, own)
    assert fit.by_order
    assert all(torch.equal(fit.tensors[name], own[name]) for name in own)

    square = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3))).state_dict()
    with pytest.raises(Misfit, match=r"3 of its tensors, in alphabetical order, may be 0\.weight"):
        match_weights({f"{letter}.weight": value for letter, value in zip("abc", square.values(), strict=True)}, square)


def test_of_another_network_the_first_three_tensors_that_differ_are_named() -> None:
    with pytest.raises(Misfit) as raised:
        match_weights(renamed(network([6, 6]).state_dict(), foreign), network([4, 4]).state_dict())
    assert len(raised.value.differences) == 3
    assert (
        raised.value.differences[0] == "_blockb0._part.weight is (6, 3, 3, 3) in the file, 0.weight (4, 3, 3, 3) here"
    )
    with pytest.raises(Misfit, match=r"it lacks 3\.running_var"):
        match_weights(
            renamed(dict(list(network([4, 4]).state_dict().items())[:-2]), foreign), network([4, 4]).state_dict()
        )
