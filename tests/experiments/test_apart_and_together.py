"""Apart and together: what is asked of a scene, by a model that knows the answers."""

import torch

from attnlab.experiments import apart_and_together as experiment
from attnlab.experiments import stored
from attnlab.experiments.apart_and_together import GRID, TASK, apart, scenes, score, together
from attnlab.experiments.grid import Trained


def test_scenes_have_two_different_digits_and_their_own_caption():
    source, own = scenes(60)
    assert len(source) == len(own) < 60
    assert (own // 10 != own % 10).all()
    batch = TASK.batch("validation", 60, seed=0)
    told = [left * 10 + right for left, right in map(TASK.pair, batch.inputs) if left != right]
    assert own.tolist() == told


def test_both_ways_judge_what_the_model_says_row_by_row():
    model = GRID.build("shared").eval()
    source, own = scenes(7)
    texts = torch.stack([TASK.caption(n // 10, n % 10) for n in own.tolist()])
    with torch.no_grad():
        s = apart(model, source, texts) / model.temperature[0]
        given = TASK.batch("validation", 7, seed=0)
        (wanted,) = model.compared(type(given)(texts, texts, source=source), ("own",))
        torch.testing.assert_close(s, wanted)
        pairs = torch.stack([texts, texts.flip(0)], 1)
        found = together(model, source, pairs)
        for i, row in enumerate(found):
            no, yes = model.matching(pairs[i, :1], source=source[i : i + 1])[0]
            torch.testing.assert_close(row[0], yes - no)


def test_an_untrained_model_knows_nothing():
    model = GRID.build("shared").eval()
    found = score(Trained(model, GRID.arms["shared"], "shared", 0, False))
    assert set(found) == {f"{q} {w}" for q in ("order", "digit", "retrieval")
                          for w in ("apart", "together")}  # fmt: skip
    assert all(0 <= found[f"retrieval {way}"] < 10 for way in ("apart", "together"))
    assert all(20 < found[f"{q} {way}"] < 80 for q in ("order", "digit")
               for way in ("apart", "together"))  # fmt: skip


def test_stored_rows_say_what_the_docstring_tells():
    """Means over seeds, and standard errors of differences, as they are printed there."""
    rows = stored("91_apart_and_together.json", "apart_and_together")
    found = {
        (arm, what): torch.tensor([rows[f"{arm}, {what}, seed {seed}"] for seed in GRID.seeds])
        for arm in GRID.arms
        for what in {name.split(", ")[-2] for name in rows}
    }
    shared, control, longer = GRID.arms
    told = " ".join(experiment.__doc__.split())
    for name, x in (
        ("in {:.1f} % of the scenes, the dual", found[shared, "order together"]),
        ("the dual encoder in {:.1f} %,", found[shared, "order apart"]),
        ("together finds the order in {:.1f} % of the scenes", found[longer, "order together"]),
        ("of the scenes and apart in {:.1f} %,", found[longer, "order apart"]),
    ):
        assert name.format(x.mean()) in told
    for name, more, less in (
        ("{:.1f} points more (standard error of the difference over seeds {:.1f})",
         (shared, "order apart"), (shared, "order together")),
        ("difference is {:.1f} points ({:.1f}): so the deficit",
         (control, "order apart"), (control, "order together")),
        ("together {:.1f} points ({:.1f}) less often than the control",
         (control, "order together"), (shared, "order together")),
        ("%, a difference of {:.1f} points ({:.1f}), and retrieval",
         (longer, "order together"), (longer, "order apart")),
        ("retrieval is {:.1f} points ({:.1f}) worse together",
         (longer, "retrieval apart"), (longer, "retrieval together")),
        ("in both arms, by {:.1f} points ({:.1f})",
         (shared, "retrieval apart"), (shared, "retrieval together")),
        ("and by {:.1f} ({:.1f}).", (control, "retrieval apart"), (control, "retrieval together")),
        ("dual encoder: {:.1f} points ({:.1f}).",
         (shared, "retrieval apart"), (control, "retrieval apart")),
    ):  # fmt: skip
        gain = found[more] - found[less]
        mean = round(gain.mean().item(), 1) + 0.0  # and not -0.0
        assert name.format(mean, gain.std() / len(gain) ** 0.5) in told
