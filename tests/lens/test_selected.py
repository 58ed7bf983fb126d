"""What layers chose, against loops over their own notes; kept and lost attention; bad records."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.probe import record
from attnlab.lens.selected import Selected, selected_in

B, N, DIM, HEADS = 2, 19, 24, 4
OPTIONS: dict[str, dict[str, Any]] = {
    "moba": {"block": 4, "chosen": 2},
    "nsa": {"stretch": 4, "stride": 2, "block": 4, "chosen": 4, "window": 3, "kv_heads": 2},
    "deepseek_sparse": {"chosen": 5, "kv_heads": 2},
}
FORMS = [(name, form) for name in OPTIONS for form in attnlab.card(name).forms]


def layer(name: str, form: str) -> Any:
    torch.manual_seed(0)
    built = attnlab.build(
        name, dim=DIM, heads=HEADS, causal=True, form=form, **OPTIONS[name]
    ).double()
    return built.eval()


def padding() -> Tensor:
    real = torch.ones(B, N, dtype=torch.bool)
    real[1, :3] = real[1, -2:] = False
    return real


def watched(name: str, form: str, batch: int) -> tuple[Any, Selected]:
    module = layer(name, form)
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    with torch.no_grad(), record() as notes, attnlab.watch(module) as seen:
        module(x, padding=padding())
    (found,) = selected_in(seen, batch)
    return notes, found


@pytest.mark.parametrize("batch", range(B))
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_read_keys_are_those_of_the_noted_choice(name: str, form: str, batch: int) -> None:
    notes, found = watched(name, form, batch)
    real = padding()[batch].tolist()
    at = [sum(real[: j + 1]) - 1 for j in range(N)]
    noted = notes.last("chosen" if name == "deepseek_sparse" else "blocks")[batch]
    for h in range(HEADS):
        for i in range(N):
            earlier = [j for j in range(i + 1) if real[i] and real[j]]
            if name == "deepseek_sparse":
                wanted = [j for j in earlier if j in noted[i].tolist()]
            else:
                of = noted[h // (HEADS // len(noted)), i].tolist()
                wanted = [j for j in earlier if at[j] // 4 in of]
            read = found.branches["selected"].read[h, i]
            assert read.nonzero()[:, 0].tolist() == wanted, (h, i)
            assert found.allowed[i].nonzero()[:, 0].tolist() == earlier


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_scores_explain_the_choice(name: str, form: str) -> None:
    """No unit that is left out has a larger score than one that is chosen by its score."""
    _, found = watched(name, form, 0)
    seen = 0
    for scores, chosen, always in zip(
        found.scores.flatten(0, 1), found.chosen.flatten(0, 1), found.always.flatten(0, 1),
        strict=True,
    ):  # fmt: skip
        by_score, out = scores[chosen & ~always], scores[~chosen & (scores > -torch.inf)]
        assert bool((chosen | ~always).all())
        if len(by_score) and len(out):
            assert by_score.min() >= out.max()
            seen += 1
    assert seen > 9


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_is_kept_is_full_attention_on_read_keys(name: str, form: str) -> None:
    module = layer(name, form)
    x = torch.randn(1, N, DIM, dtype=torch.float64)
    with torch.no_grad(), attnlab.watch(module) as seen:
        module(x)
    (found,) = selected_in(seen)
    q, k = seen[0].queries[0], seen[0].keys[0].repeat_interleave(HEADS // seen[0].keys.shape[1], 0)
    full = torch.nn.functional.scaled_dot_product_attention(
        q, k, torch.eye(N, dtype=torch.float64).expand(HEADS, N, N), is_causal=True
    )
    torch.testing.assert_close(found.full, full)
    kept = found.kept()
    for h in range(HEADS):
        for i in range(N):
            read = found.branches["selected"].read[h, i]
            assert kept[h, i] == pytest.approx(float(full[h, i][read].sum()))
    torch.testing.assert_close(found.mean_kept(), kept.mean(-1))
    torch.testing.assert_close(found.by_unit().sum(-1), torch.ones(HEADS, N).double())
    inside = (found.by_unit() * found.chosen).sum(-1)
    torch.testing.assert_close(inside, kept)


@pytest.mark.parametrize("form", ["naive", "blocked"])
def test_the_branches_of_nsa_make_its_output(form: str) -> None:
    module = layer("nsa", form)
    x = torch.randn(1, N, DIM, dtype=torch.float64)
    with torch.no_grad(), attnlab.watch(module) as seen:
        out = module(x)
    (found,) = selected_in(seen)
    assert list(found.branches) == ["compressed", "selected", "window"]
    weights = sum(part.gates[..., None] * part.weights for part in found.branches.values())
    torch.testing.assert_close(weights, seen[0].weights[0])
    values = seen[0].values[0].repeat_interleave(2, 0)
    torch.testing.assert_close(module.heads.merge((weights @ values)[None]), out)
    assert found.read("window")[0].tolist() == [min(i + 1, 3) for i in range(N)]
    complete = [max((i + 1) // 2 * 2, 0) if i >= 3 else 0 for i in range(N)]
    assert found.read("compressed")[0].tolist() == complete


def test_a_layer_that_reads_everything_keeps_everything() -> None:
    module = attnlab.build("moba", dim=DIM, heads=HEADS, causal=True, block=4, chosen=9)
    with torch.no_grad(), attnlab.watch(module) as seen:
        module(torch.randn(1, N, DIM))
    torch.testing.assert_close(selected_in(seen)[0].kept(), torch.ones(HEADS, N).double())


def test_decoding_is_the_last_row_of_the_whole() -> None:
    for name in OPTIONS:
        module = layer(name, "naive")
        x = torch.randn(1, N, DIM, dtype=torch.float64)
        with torch.no_grad():
            with attnlab.watch(module) as whole:
                module(x)
            _, state = module.step(x[:, :-1], None)
            with attnlab.watch(module) as one:
                module.step(x[:, -1:], state)
        (a,), (b,) = selected_in(whole), selected_in(one)
        assert torch.equal(a.branches["selected"].read[:, -1:], b.branches["selected"].read)
        torch.testing.assert_close(a.kept()[:, -1:], b.kept())
        torch.testing.assert_close(a.scores[:, -1:], b.scores)


def test_others_are_passed_over_and_bad_records_refused() -> None:
    model = attnlab.TinyTransformer(9, dim=8, heads=2, layers=2, attention=["full", "moba"])
    with torch.no_grad(), attnlab.watch(model) as seen:
        model(torch.arange(8)[None])
    (found,) = selected_in(seen)
    assert found.name == seen[1].name
    assert selected_in(seen[1])[0].name == found.name
    for given, words in (
        (seen[:1], f"no layer of `seen` notes which keys it chose.*it has {seen[0].name}"),
        ([], "no attention was recorded"),
    ):
        with pytest.raises(ValueError, match=words):
            selected_in(given)
    for given in (3, "moba", torch.ones(2), [1]):
        with pytest.raises(TypeError, match=re.escape("`seen` should be what attnlab.watch")):
            selected_in(given)
    with pytest.raises(ValueError, match="`batch` should be 0 to 0, got 1"):
        selected_in(seen, 1)
