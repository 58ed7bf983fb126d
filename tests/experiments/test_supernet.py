"""The experiment `supernet`: costs, and what its stored rows say."""

from attnlab.experiments import stored, supernet
from attnlab.experiments.supernet import CHOSEN, SEEDS, SPACE, flops, named


def test_the_eight_are_sizes_of_the_space_and_differ_in_cost() -> None:
    assert all(sizes in SPACE for sizes in CHOSEN)
    assert len({named(sizes) for sizes in CHOSEN}) == len(CHOSEN) == 8
    costs = [flops(sizes) for sizes in CHOSEN]
    assert len({*costs}) == 8
    assert max(costs) == flops(SPACE.largest)
    assert max(costs) > 6 * min(costs)


def test_what_the_stored_rows_say() -> None:
    """Inherited weights rank the networks roughly as training does, better than counted FLOPs do,
    and score lower."""
    rows = stored("09_supernet.json", "supernet")
    found = [supernet.correlations(rows, seed) for seed in SEEDS]
    assert all(0.4 < each["inherited"] < 0.95 for each in found)
    assert all(each["inherited"] > each["flops"] for each in found)
    for seed in SEEDS:
        for sizes in CHOSEN:
            inherited = rows[f"supernet, {named(sizes)}, seed {seed}"]
            assert rows[f"supernet, worst of all, seed {seed}"] <= inherited
            assert inherited <= rows[f"supernet, best of all, seed {seed}"]
            assert inherited < rows[f"{named(sizes)}, retrained, seed {seed}"]
