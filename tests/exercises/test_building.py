"""The checks of lesson 06 name each mistake, and accept every way of writing the right answer."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import (
    check_block,
    check_embedding,
    check_heads_attend,
    check_network,
    check_next_token_loss,
    check_stack,
    check_training,
    check_whole_model,
    stages,
    whole_model,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation
from tests.exercises.frame import answers_to, named

# ---- right answers, in several styles


def embed_by_loop(ids, tokens, places):
    return torch.stack([tokens[int(token)] + places[i] for i, token in enumerate(ids)])


def embed_by_numpy(ids, tokens, places):
    return tokens.numpy()[ids.numpy()] + places.numpy()[: len(ids)]


def attend_by_head(x, wq, wk, wv, wo, heads):
    outs, d = [], x.shape[1] // heads
    for a in range(heads):
        own = slice(a * d, (a + 1) * d)
        q, k, v = (F.linear(x, w[own]) for w in (wq, wk, wv))
        outs.append(F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0])
    return F.linear(torch.cat(outs, -1), wo)


def attend_by_query(x, wq, wk, wv, wo, heads):
    d = x.shape[1] // heads
    out = torch.zeros(x.shape)  # float32, as PyTorch makes it
    for i in range(len(x)):
        for a in range(heads):
            own = slice(a * d, (a + 1) * d)
            q = (x[i] @ wq.T)[own]
            k, v = (x[: i + 1] @ wk.T)[:, own], (x[: i + 1] @ wv.T)[:, own]
            out[i, own] = ((k @ q / math.sqrt(d)).softmax(0) @ v).float()
    return out @ wo.T


def network_by_erf(x, w1, b1, w2, b2):
    y = F.linear(x, w1, b1)
    return F.linear(y * (1 + torch.erf(y / math.sqrt(2))) / 2, w2, b2)


def block_by_hand(x, attention, network, gain, bias):
    for part, g, b in zip((attention, network), gain, bias, strict=True):
        centred = x - x.mean(-1, keepdim=True)
        x = x + part(g * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() + b)
    return x


def stack_in_place(x, blocks, gain, bias, tokens):
    for each in blocks:
        x += each(x) - x
    return F.linear(F.layer_norm(x, x.shape[-1:], gain, bias), tokens)


def loss_by_loop(scores, ids):
    n = len(ids)
    return sum(float(scores[i].logsumexp(0) - scores[i, ids[i + 1]]) for i in range(n - 1)) / (
        n - 1
    )


def train_with_tensors(parameters, loss_of, batches, rate):
    made, losses = torch.optim.AdamW(params=parameters, lr=rate), []
    for batch in batches:
        losses.append(loss_of(batch))
        losses[-1].backward()
        made.step()
        for p in parameters:
            p.grad = None
    return torch.stack(losses)


RIGHT: list[tuple[Any, Any]] = [
    *((check_embedding, f) for f in (stages.embed, embed_by_loop, embed_by_numpy)),
    *((check_heads_attend, f) for f in (stages.attend, attend_by_head, attend_by_query)),
    *((check_network, f) for f in (stages.feed_forward, network_by_erf)),
    *((check_block, f) for f in (stages.block, block_by_hand)),
    (check_stack, stages.stack),
    *((check_next_token_loss, f) for f in (stages.next_token_loss, loss_by_loop)),
    *((check_training, f) for f in (stages.train, train_with_tensors)),
]  # fmt: skip
TRAININGS = [
    (words, lambda *given, c=changes: whole_model._trained(*given, **c))
    for words, changes in whole_model._TRAIN_MISTAKEN
]

TestStages = answers_to(
    RIGHT,
    [
        (check_training, named(TRAININGS)),
        (check_training, {"raises": ("raised ZeroDivisionError", lambda *given: 1 / 0)}),
    ],
)


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize(("check", "solution"), RIGHT)
def test_hidden_tests_accept_the_same(check: Any, solution: Any, seed: int) -> None:
    verdict = check(solution, seed=seed)
    assert verdict.right, verdict.message


STAGES = [
    check_embedding, check_heads_attend, check_network, check_block, check_stack,
    check_next_token_loss,
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "mistakes"),
    [*((stage, stage.known_mistakes) for stage in STAGES), (check_training, TRAININGS)],
)
def test_hidden_tests_refuse_the_same(check: Any, mistakes: Any) -> None:
    assert not [words for words, wrong in mistakes if check(wrong, seed=4).right]


def test_what_fits_the_instant_check_alone_fails_a_hidden_one(refuses: Callable) -> None:
    def attend(x, wq, wk, wv, wo, heads):
        return stages.attend(x, wq, wk, wv, wo, heads) if x.shape[1] == 15 else x

    assert check_heads_attend(attend).right
    assert not check_heads_attend(attend, seed=4).right


def test_large_scores_overflow(refuses: Callable) -> None:
    def loss(scores, ids):
        powers = scores.exp()
        return -(powers[range(len(ids) - 1), ids[1:]] / powers[:-1].sum(-1)).log().mean()

    refuses(check_next_token_loss(loss), "near 1000")


def test_a_block_that_changes_its_argument(refuses: Callable) -> None:
    refuses(check_stack(stack_in_place), "`x` changed in place")


# ---- the whole model


@pytest.fixture(scope="module")
def shipped() -> tuple[TinyTransformer, Documentation]:
    torch.manual_seed(0)
    task = Documentation("bytes", length=64)
    return TinyTransformer(task.vocab, dim=8, layers=1, heads=2, max_len=64).eval(), task


@pytest.mark.parametrize("seed", [0, 4])
def test_the_whole_model(shipped: Any, seed: int) -> None:
    verdict = check_whole_model(stages.model, *shipped, seed=seed)
    assert verdict.right, verdict.message
    assert "token for token" in verdict.message


@pytest.mark.parametrize(("words", "wrong"), whole_model._MODEL_MISTAKEN)
def test_models_put_together_wrongly(
    shipped: Any, words: str, wrong: Any, refuses: Callable
) -> None:
    refuses(check_whole_model(wrong, *shipped), words)


def test_a_model_with_a_size_written_down(shipped: Any, refuses: Callable) -> None:
    def model(ids: Tensor, weights: Any, heads: int) -> Tensor:
        return stages.model(ids, weights, 3)

    task = shipped[1]
    larger = TinyTransformer(task.vocab, dim=12, layers=1, heads=2, max_len=64)
    for p in larger.parameters():
        torch.nn.init.normal_(p, std=1.0, generator=torch.Generator().manual_seed(p.numel()))
    refuses(check_whole_model(model, larger.eval(), task), "Is a size written down")
