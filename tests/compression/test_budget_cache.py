"""A cache of at most b tokens: which of them stay, and that all of them are the model itself."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.compression.budget_cache import (
    H2O,
    BudgetCacheAttention,
    Cache,
    Policy,
    Quest,
    Random,
    Sinks,
    SnapKV,
    Window,
    budget_cache,
)
from attnlab.core.probe import record
from attnlab.measure.cache import kept

DIM, HEADS, N, PROMPT = 12, 2, 23, 9
LAYERS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, rope": {"positions": "rope"},
    "full, alibi": {"positions": "alibi"},
    "multi_query": {"heads": 6, "kv_heads": 3, "positions": "alibi"},
    "qk_norm": {"positions": "rope"},
    "soft_cap": {"cap": 1.0},
    "sink": {},
    "gated_attention": {},
    "flash": {},
}


def policies(budget: int) -> dict[str, Policy]:
    return {
        "window": Window(budget=budget),
        "sinks": Sinks(budget=budget, sinks=2),
        "h2o": H2O(budget=budget),
        "random": Random(budget=budget),
        "snapkv": SnapKV(budget=budget, window=3, pool=3),
        "quest": Quest(budget=budget, page=3),
    }


def layer(name: str, **given: Any) -> Any:
    torch.manual_seed(2)
    options = {"heads": HEADS, **LAYERS.get(name, {}), **given}
    return attnlab.build(name.split(",")[0], dim=DIM, causal=True, **options).double().eval()


def drawn(n: int = N, b: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(b, n, DIM, generator=torch.Generator().manual_seed(seed)).double()


def decoded(module: Any, x: Tensor, prompt: int = PROMPT) -> tuple[Tensor, list[Cache]]:
    """The prompt at once, then token by token."""
    out, state = module.step(x[:, :prompt])
    outs, states = [out], [state]
    for token in x[:, prompt:].split(1, dim=1):
        out, state = module.step(token, state)
        outs.append(out)
        states.append(state)
    return torch.cat(outs, dim=1), states


@pytest.mark.parametrize("policy", policies(8))
@pytest.mark.parametrize("name", LAYERS)
def test_a_budget_that_holds_the_text_is_the_model(name: str, policy: str) -> None:
    module, x = layer(name), drawn()
    found, states = decoded(budget_cache(module, policies(30)[policy]), x)
    torch.testing.assert_close(found, module(x))
    assert states[-1].size == N


@pytest.mark.parametrize("policy", policies(8))
@pytest.mark.parametrize("name", LAYERS)
def test_a_new_token_attends_to_what_is_kept_and_to_itself(name: str, policy: str) -> None:
    """The whole sequence at once, under the mask of what each state kept."""
    module, x = layer(name), drawn()
    chosen = policies(8)[policy]
    found, states = decoded(budget_cache(module, chosen), x)
    q, k, v = module.heads.project(x)
    g, at = k.shape[1], torch.arange(N)
    seen = (at <= at[:, None]).expand(3, q.shape[1], N, N).clone()
    for place, state in enumerate(states[:-1], start=PROMPT):
        row = torch.zeros(3, g, N, dtype=torch.bool).scatter_(2, state.at, True)
        row[..., place] = True
        seen[:, :, place] = row.repeat_interleave(q.shape[1] // g, dim=1)
        if isinstance(chosen, Quest):
            held = Cache(*(x[:, :, : place + 1] for x in (k, v)), state.at, state.scores, place + 1)
            held = held._replace(at=at[: place + 1].expand(3, g, -1))
            asked = q[:, :, place : place + 1, : k.shape[-1]]
            seen[:, :, place, : place + 1] = chosen.read(asked, held)[:, :, 0]
    bias = module.heads.bias(N, N)
    torch.testing.assert_close(found, module.heads.merge(module._attend(q, k, v, seen, bias)))


@pytest.mark.parametrize("policy", policies(8))
def test_what_has_left_does_not_come_back(policy: str) -> None:
    chosen = policies(8)[policy]
    _, states = decoded(budget_cache(layer("full, rope"), chosen), drawn())
    for before, after in pairwise(states):
        for old, new in zip(before.at.flatten(0, 1), after.at.flatten(0, 1), strict=True):
            assert set(new.tolist()) <= {*old.tolist(), before.length}
            assert new.tolist() == sorted(new.tolist())
    sizes = [state.size for state in states]
    grows = [PROMPT + step for step in range(N - PROMPT + 1)]
    wanted = {"quest": grows, "snapkv": [8 + step for step in range(N - PROMPT + 1)]}
    assert sizes == wanted.get(policy, [8] * len(sizes))


@pytest.mark.parametrize(
    ("policy", "streaming"),
    [
        (Window(budget=5), {"sinks": 0, "window": 6}),
        (Sinks(budget=7, sinks=2), {"sinks": 2, "window": 6}),
        (H2O(budget=5, recent=5), {"sinks": 0, "window": 6}),
        (Random(budget=5, recent=5), {"sinks": 0, "window": 6}),
        (Window(budget=0), {"sinks": 0, "window": 1}),
        (H2O(budget=0), {"sinks": 0, "window": 1}),
    ],
)
def test_windows_are_those_of_streaming(policy: Policy, streaming: dict[str, int]) -> None:
    ours, theirs, x = layer("full"), layer("streaming", **streaming), drawn()
    theirs.load_state_dict(ours.state_dict())
    found, states = decoded(budget_cache(ours, policy), x, prompt=1)
    torch.testing.assert_close(found, theirs(x))
    assert states[-1].size == policy.budget


def test_heavy_hitters_are_those_of_the_definition() -> None:
    """By hand, head by head: sums of weights over what was kept, the least of the older leaves."""
    module, x = layer("full"), drawn(b=1)
    _, states = decoded(budget_cache(module, H2O(budget=6, recent=2)), x)
    q, k, _ = module.heads.project(x)
    for head in range(HEADS):
        scores = (q[0, head] @ k[0, head].mT * q.shape[-1] ** -0.5).exp()
        total, there = torch.zeros(N, dtype=torch.float64), list(range(PROMPT))
        for i in range(PROMPT):
            total[: i + 1] += scores[i, : i + 1] / scores[i, : i + 1].sum()
        for length, state in enumerate(states, start=PROMPT):
            if length > PROMPT:
                there.append(length - 1)
                total[there] += scores[length - 1, there] / scores[length - 1, there].sum()
            while len(there) > 6:
                there.remove(min(there[: len(there) - 2], key=lambda j: total[j].item()))
            assert state.at[0, head].tolist() == there
            torch.testing.assert_close(state.scores[0, head], total[there])


def test_the_votes_of_the_last_tokens_are_pooled() -> None:
    module, x = layer("full"), drawn(b=1)
    _, state = budget_cache(module, SnapKV(budget=9, window=4, pool=3)).step(x)
    q, k, _ = module.heads.project(x)
    weights = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(
        torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf
    )
    votes = weights.softmax(-1)[0, :, -4:, : N - 4].sum(1)
    for head in range(HEADS):
        near = [sum(votes[head, max(0, j - 1) : j + 2].tolist()) / 3 for j in range(N - 4)]
        best = sorted(range(N - 4), key=lambda j: -near[j])[:5]
        assert state.at[0, head].tolist() == [*sorted(best), *range(N - 4, N)]


def test_a_prompt_that_fits_is_kept_whole() -> None:
    _, state = budget_cache(layer("full"), SnapKV(budget=30, window=4)).step(drawn(7))
    assert state.at[0, 0].tolist() == list(range(7))
    _, short = budget_cache(layer("full"), SnapKV(budget=30, window=25)).step(drawn(7))
    assert short.size == 7


def held(k: Tensor) -> Cache:
    b, g, t = k.shape[:3]
    return Cache(k, k, torch.arange(t).expand(b, g, t), k.new_zeros(b, g, t), t)


def test_no_key_of_a_page_is_above_its_bound_and_pages_of_one_are_the_largest() -> None:
    q, k = (torch.randn(2, 3, n, 5, dtype=torch.float64) for n in (1, 29))
    products = (q @ k.mT)[:, :, 0]
    with record() as notes:
        read = Quest(budget=12, page=4).read(q, held(k))[:, :, 0]
    pages = notes.last("pages")
    assert pages.shape == (2, 3, 2)
    assert read.sum(-1).eq(2 * 4 + 1).all()  # the page of token 28 has one token
    whole = k[:, :, :28].unflatten(2, (7, 4))
    bound = torch.maximum(q * whole.amin(3), q * whole.amax(3)).sum(-1)
    assert (bound >= products[..., :28].unflatten(2, (7, 4)).amax(-1)).all()
    assert (bound.gather(-1, pages).amin(-1) >= bound.sort(-1).values[..., -2]).all()
    one = Quest(budget=6, page=1).read(q, held(k))[:, :, 0]
    best = products[..., :-1].topk(5).indices
    wanted = torch.zeros_like(one).scatter_(-1, best, True)
    wanted[..., -1] = True
    assert torch.equal(one, wanted)


def test_heads_that_share_keys_decide_together() -> None:
    module, x = layer("multi_query", positions=None), drawn(b=2)
    _, state = budget_cache(module, H2O(budget=N)).step(x)
    assert state.at.shape == (2, 3, N)
    q, k, v = module.heads.project(x)
    with record() as notes:
        attnlab.card("multi_query").forms["naive"](
            q, k, v, mask=torch.ones(N, N, dtype=torch.bool).tril()
        )
    both = notes.last("weights").sum(2).unflatten(1, (3, 2)).sum(2)
    torch.testing.assert_close(state.scores, both)


def test_tokens_are_drawn_anew_for_each_layer_and_seed_and_all_with_the_same_chance() -> None:
    x = torch.zeros(1, 40, DIM).double()
    module = layer("full")
    counts, seen = torch.zeros(40), set()
    for seed in range(300):
        state = None
        small = BudgetCacheAttention(module, Random(budget=10, recent=0, seed=seed))
        for piece in x.split(8, dim=1):
            _, state = small.step(piece, state)
        counts[state.at[0, 0]] += 1  # type: ignore[union-attr]
        seen.add(tuple(state.at[0, 0].tolist()))  # type: ignore[union-attr]
    assert len(seen) > 290
    assert ((counts - 75).abs() < 5 * (300 * 0.25 * 0.75) ** 0.5).all()
    other = BudgetCacheAttention(module, Random(budget=10, recent=0), layer=1).step(x)[1]
    again = BudgetCacheAttention(module, Random(budget=10, recent=0)).step(x)[1]
    twice = BudgetCacheAttention(module, Random(budget=10, recent=0)).step(x)[1]
    assert torch.equal(again.at, twice.at)
    assert not torch.equal(again.at, other.at)


def model(**options: Any) -> attnlab.TinyTransformer:
    torch.manual_seed(0)
    given = {"dim": 24, "heads": 4, "layers": 2, "max_len": 4096, **options}
    return attnlab.TinyTransformer(20, **given).eval()


def test_a_model_writes_with_a_budget_and_is_left_as_it_was() -> None:
    theirs = model(positions="rope")
    small = budget_cache(theirs, H2O(budget=6))
    tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(small(tokens), theirs(tokens))
    assert attnlab.generate(small, tokens, 20).shape == (2, 29)
    assert not any(isinstance(part, BudgetCacheAttention) for part in theirs.modules())
    with record() as notes:
        small.step(tokens)
    assert [x.shape for x in notes["kept"]] == [(2, 4, 6)] * 2


def test_what_is_kept_is_counted() -> None:
    """Keys and values in 16 bits; where tokens stand in 64 and their scores in 32, by head."""
    theirs, n = model(), 2000
    exact = kept(theirs, n).bytes / n
    assert kept(budget_cache(theirs, H2O(budget=50)), n).bytes == 50 * (exact + 2 * 4 * 12)
    assert kept(budget_cache(theirs, Quest(budget=50)), n).bytes == n * (exact + 2 * 4 * 12)


def test_half_precision_keeps_sums_in_float32() -> None:
    module, x = layer("full").to(torch.bfloat16), drawn().to(torch.bfloat16)
    out, state = budget_cache(module, H2O(budget=5)).step(x)
    assert out.dtype == state.keys.dtype == torch.bfloat16
    assert state.scores.dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Window(budget=-1), "budget"),
        (lambda: Sinks(budget=3), "sinks=4 does not fit into a budget of 3 tokens"),
        (lambda: H2O(budget=3, recent=4), "recent=4 does not fit into a budget of 3"),
        (lambda: SnapKV(budget=16), "window=32 does not fit into a budget of 16"),
        (lambda: SnapKV(budget=64, pool=4), "pool should be odd"),
        (lambda: Quest(budget=8), "page=16 does not fit into a budget of 8"),
        (lambda: budget_cache(model(cache_of=[0, 0]), Window(budget=3)), "share a cache"),
        (lambda: budget_cache(model(attention="linear"), Window(budget=3)), "no causal layer"),
        (lambda: budget_cache(model(attention="mla"), Window(budget=3)), "MultiHeadLatent"),
        (lambda: budget_cache(layer("differential"), Window(budget=3)), "one softmax"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_wrong_kinds_are_refused() -> None:
    module, x = layer("full"), drawn(3)
    with pytest.raises(TypeError, match="such as H2O"):
        budget_cache(module, H2O)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="such as H2O"):
        budget_cache(module, 64)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="should be a module"):
        budget_cache("full", H2O(budget=3))  # type: ignore[type-var]
    _, other = module.step(x)
    with pytest.raises(TypeError, match="another mechanism"):
        budget_cache(module, H2O(budget=3)).step(x, other)
