"""Apart and together: what is asked of a scene, by a model that knows the answers."""

import torch

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
