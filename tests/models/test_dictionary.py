import math
from collections import deque

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from dualtemp import KeyDictionary
from dualtemp.losses import info_nce


def batch(n: int, dim: int, seed: int) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@given(size=st.integers(1, 20), batches=st.lists(st.integers(0, 45), max_size=8), n=st.integers(1, 20))
def test_it_holds_what_a_queue_would_hold(size: int, batches: list[int], n: int) -> None:
    dictionary = KeyDictionary(size, 3)
    queue = deque(dictionary.keys.clone(), maxlen=size)
    last: list[torch.Tensor] = []
    for seed, length in enumerate(batches):
        keys = batch(length, 3, seed)
        dictionary.enqueue(keys)
        queue.extend(F.normalize(keys, dim=1))
        last = list(F.normalize(keys, dim=1))[-size:]
    n = min(n, size)
    assert torch.equal(dictionary.newest(n), torch.stack(list(queue)[size - n :]))
    assert torch.equal(dictionary.earliest(n), torch.stack(list(queue)[:n]))
    assert torch.equal(dictionary.last(), torch.stack(last) if last else torch.empty(0, 3))
    assert dictionary.real == min(sum(batches), size)
    assert len(dictionary) == size


def test_it_starts_with_random_unit_vectors_that_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    first = KeyDictionary(1000, 64, seed=1)
    state = torch.get_rng_state()
    again, other = KeyDictionary(1000, 64, seed=1), KeyDictionary(1000, 64, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.keys, again.keys)
    assert not torch.equal(first.keys, other.keys)
    torch.testing.assert_close(first.keys.norm(dim=1), torch.ones(1000))
    assert first.keys.mean().abs() < 0.01
    assert first.real == 0


def test_a_random_draw_has_no_key_twice_and_is_repeatable() -> None:
    dictionary = KeyDictionary(50, 4)
    draw = dictionary.random(20, torch.Generator().manual_seed(3))
    assert torch.equal(draw, dictionary.random(20, torch.Generator().manual_seed(3)))
    where = (draw[:, None] == dictionary.keys[None]).all(-1)
    assert where.sum(1).tolist() == [1] * 20
    assert where.any(0).sum() == 20
    assert torch.equal(dictionary.random(50).sum(0).round(decimals=4), dictionary.keys.sum(0).round(decimals=4))


def test_the_state_dict_holds_keys_and_place_and_loads_without_code(tmp_path) -> None:
    dictionary = KeyDictionary(7, 2)
    dictionary.enqueue(batch(10, 2, 0))
    dictionary.enqueue(batch(3, 2, 1))
    torch.save(dictionary.state_dict(), tmp_path / "state.pt")
    loaded = KeyDictionary(7, 2, seed=9)
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for d in (dictionary, loaded):
        d.enqueue(batch(2, 2, 2))
    assert torch.equal(dictionary.newest(7), loaded.newest(7))
    assert torch.equal(dictionary.last(), loaded.last())
    assert (dictionary.real, dictionary.seen) == (loaded.real, loaded.seen)


def test_a_step_with_65536_keys_copies_none_of_them() -> None:
    dictionary = KeyDictionary(65536, 128)
    q, k = F.normalize(batch(32, 128, 0), dim=1).requires_grad_(), F.normalize(batch(32, 128, 1), dim=1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        info_nce(q, k, dictionary.keys, normalize=False).backward()
        dictionary.enqueue(k)
        _ = dictionary.newest(256), dictionary.earliest(256), dictionary.last()
    allocated = max(event.self_cpu_memory_usage for event in seen.events() or [])
    assert 0 < allocated < dictionary.keys.nbytes / 8
    assert dictionary.newest(32).data_ptr() == dictionary.keys.data_ptr()


def test_keys_that_come_in_before_backward_do_not_change_the_gradient() -> None:
    dictionary = KeyDictionary(64, 8)
    q, k = F.normalize(batch(4, 8, 0), dim=1).requires_grad_(), F.normalize(batch(4, 8, 1), dim=1)
    expected = torch.autograd.grad(info_nce(q, k, dictionary.keys.clone(), normalize=False), q)[0]
    loss = info_nce(q, k, dictionary.keys, normalize=False)
    dictionary.enqueue(batch(64, 8, 2))
    assert torch.equal(torch.autograd.grad(loss, q)[0], expected)


@pytest.mark.parametrize("n", [0, -1, 8])
def test_more_keys_than_there_are_or_none_are_refused(n: int) -> None:
    dictionary = KeyDictionary(7, 2)
    for choose in (dictionary.newest, dictionary.earliest, dictionary.random):
        with pytest.raises(ValueError, match="from 1 to the dictionary's size 7"):
            choose(n)


def test_keys_of_a_wrong_shape_are_refused_and_change_nothing() -> None:
    dictionary = KeyDictionary(7, 2)
    before = dictionary.keys.clone()
    for keys in (torch.ones(3, 3), torch.ones(2), torch.ones(3, 2, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"floating-point \(N, 2\)"):
            dictionary.enqueue(keys)
    assert torch.equal(dictionary.keys, before)
    assert dictionary.real == 0
    with pytest.raises(ValueError, match="at least 1"):
        KeyDictionary(0, 2)


@pytest.mark.parametrize("spoiled", [math.nan, math.inf])
def test_a_key_that_is_not_finite_leaves_the_one_before_it(spoiled: float) -> None:
    dictionary = KeyDictionary(5, 3)
    dictionary.enqueue(batch(5, 3, 0))
    before, keys = dictionary.keys.clone(), batch(3, 3, 1)
    dictionary.enqueue(torch.cat((keys[:1], torch.full((1, 3), spoiled), keys[2:])))
    expected = F.normalize(keys, dim=1)
    assert torch.equal(dictionary.newest(3), torch.stack((expected[0], before[1], expected[2])))
    assert dictionary.seen == 8


@pytest.mark.parametrize("scale", [1e-4, 1.0, 500.0])
def test_a_dictionary_in_half_precision_has_keys_of_length_1(scale: float) -> None:
    dictionary = KeyDictionary(8, 64).half()
    keys = (scale * batch(8, 64, 0)).half()
    dictionary.enqueue(keys)
    assert dictionary.keys.dtype == torch.float16
    torch.testing.assert_close(dictionary.newest(8).float(), F.normalize(keys.float(), dim=1), rtol=2e-3, atol=1e-4)
