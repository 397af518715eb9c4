import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.worker.seeds import SEED31_BITS, SEED_BITS, Permutation, Seeds, seeds


@given(st.binary(min_size=1, max_size=32), st.integers(2, 11))
def test_a_key_permutes_the_whole_range(key, bits):
    permutation = Permutation(key, bits)

    assert sorted(map(permutation, range(permutation.size))) == list(range(1, 2**bits - 1))


@given(st.binary(min_size=1, max_size=32), st.sampled_from([SEED_BITS, SEED31_BITS]), st.data())
def test_two_indices_never_share_a_seed(key, bits, data):
    permutation = Permutation(key, bits)
    index = st.integers(0, permutation.size - 1)
    one, other = data.draw(index), data.draw(index)

    assert (permutation(one) == permutation(other)) == (one == other)
    assert 1 <= permutation(one) <= 2**bits - 2


@pytest.mark.parametrize("index", [-1, 2**31 - 2])
def test_an_index_beyond_the_seeds_is_an_error(index):
    with pytest.raises(ValueError, match="there is none at"):
        Permutation(b"key", SEED31_BITS)(index)


def test_seeds_of_a_release_never_change():
    # Whoever repeats a run of years ago gets its numbers; these values are part of the contract
    assert list(seeds(0, "sweep", 2)) == [
        (2_492_773_802_457_488_072, 298_649_723),
        (6_227_129_649_677_785_842, 1_068_912_585),
    ]
    assert Seeds(2**62, "sweep").at(999_999) == (1_629_536_784_003_957_632, 441_362_503)


def test_a_unit_keeps_its_seeds_when_the_task_grows():
    assert list(seeds(7, "sweep", 100))[:10] == list(seeds(7, "sweep", 10))


def test_all_seeds_of_a_task_differ_in_both_widths():
    wide, narrow = zip(*seeds(1, "sweep", 3000), strict=True)

    assert len(set(wide)) == len(set(narrow)) == 3000


def test_tasks_and_base_seeds_have_seeds_of_their_own():
    drawn = [set(seeds(base, task, 300)) for base, task in [(0, "a"), (0, "b"), (1, "a")]]

    assert len(set.union(*drawn)) == 900


def test_neighbouring_units_have_seeds_far_apart():
    narrow = [seed31 for _, seed31 in seeds(0, "sweep", 1000)]
    flipped = sum((one ^ other).bit_count() for one, other in itertools.pairwise(narrow))

    assert 14 < flipped / 999 < 17  # half of 31 bits


def test_a_replicate_has_the_same_seeds_at_all_points():
    drawn = list(seeds(0, "sweep", 6, across="replicates", replicates=3))

    assert drawn[:3] == drawn[3:]
    assert len(set(drawn)) == 3
