"""Depth-adaptive: who leaves when, and what later layers see of a token that has left."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.architecture.depth.depth_adaptive import early, geometric, multinomial, naive
from attnlab.core.exits import every_exit
from attnlab.core.probe import record
from attnlab.models.tiny import TinyTransformer
from attnlab.testing.architecture import deep

VOCAB, N, LAYERS = 11, 7, 4
TOKENS = torch.randint(VOCAB, (3, N), generator=torch.Generator().manual_seed(0))
KINDS = ["geometric", "multinomial"]


def model(*, trained: bool = True, **options: Any) -> TinyTransformer:
    """With random scores of leaving, where it counts as trained."""
    torch.manual_seed(1)
    made = TinyTransformer(
        vocab=VOCAB, dim=12, heads=2, layers=LAYERS, hidden=17, max_len=N,
        depth="depth_adaptive", depth_options=options,
    ).double().eval()  # fmt: skip
    made.embedding.weight.data.mul_(50)  # so that tokens differ
    if trained:
        depth: Any = made.decoder.depth
        depth.trained.fill_(True)
        torch.nn.init.normal_(depth.scores.weight)
        torch.nn.init.zeros_(depth.scores.bias)
    return made


def halted(made: nn.Module, tokens: Tensor = TOKENS) -> Tensor:
    with record() as notes, torch.no_grad():
        made(tokens)
    (found,) = notes["halted"]
    return found


@pytest.mark.parametrize(("q", "width"), [(geometric, LAYERS - 1), (multinomial, LAYERS)])
def test_probabilities_of_leaving_sum_to_one(q: Any, width: int) -> None:
    scores = 3 * torch.randn(5, 7, width, dtype=torch.float64)
    found = q(scores)
    assert found.shape == (5, 7, LAYERS)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(5, 7, dtype=torch.float64))


def test_geometric_probabilities_are_products() -> None:
    scores = torch.randn(3, dtype=torch.float64)
    chi = scores.sigmoid().tolist()
    stay = [1 - x for x in chi]
    expected = [chi[0], stay[0] * chi[1], stay[0] * stay[1] * chi[2], stay[0] * stay[1] * stay[2]]
    torch.testing.assert_close(geometric(scores).exp().tolist(), expected)


@pytest.mark.parametrize("halting", KINDS)
def test_a_token_leaves_where_its_probability_says(halting: str) -> None:
    made = model(halting=halting)
    with every_exit() as found, torch.no_grad():
        made(TOKENS)
    q = found[0].leaving
    assert q is not None
    left = halted(made)
    assert left.dtype == torch.int64
    assert len(left.unique()) > 1
    if halting == "multinomial":
        assert torch.equal(left, q.argmax(-1) + 1)
        return
    staying = 1 - q.exp().cumsum(-1)
    assert torch.equal(left == 1, q[..., 0].exp() > 0.5)
    assert torch.equal(
        left <= 2, (q[..., 0].exp() > 0.5) | (q[..., 1].exp() > 0.5 * staying[..., 0])
    )


@pytest.mark.parametrize("halting", KINDS)
def test_later_layers_see_a_token_as_it_left(halting: str) -> None:
    """Layer by layer, with a loop over tokens."""
    made = model(halting=halting)
    left = halted(made)
    with record() as notes, torch.no_grad():
        out = made(TOKENS)
    states = notes["states"]
    assert len(states) == LAYERS
    with torch.no_grad():
        for n, block in enumerate(made.decoder.blocks[1:], 2):
            fresh = block(states[n - 2])
            for row in range(3):
                for token in range(N):
                    stays = left[row, token] >= n
                    wanted = fresh if stays else states[n - 2]
                    torch.testing.assert_close(states[n - 1][row, token], wanted[row, token])
        torch.testing.assert_close(made.logits(made.decoder.depth.norm(states[-1])), out)


@pytest.mark.parametrize("halting", KINDS)
def test_decoding_gives_what_the_whole_text_gives(halting: str) -> None:
    made, state = model(halting=halting), None
    with torch.no_grad():
        whole = made(TOKENS)
        for i in range(N):
            out, state = made.step(TOKENS[:, i : i + 1], state)
            torch.testing.assert_close(out, whole[:, i])


def test_no_layer_runs_once_every_token_has_left() -> None:
    x, layers = deep(5)
    run: list[int] = []
    counted = [lambda x, n=n: run.append(n) or layers[n](x) for n in range(5)]
    leaves = lambda n, x: torch.full(x.shape[:-1], n == 2)  # noqa: E731
    found = early(x, counted, leaves)  # type: ignore[arg-type]
    assert run == [0, 1]
    torch.testing.assert_close(found, naive(x, counted, leaves))  # type: ignore[arg-type]
    assert run == [0, 1, 0, 1, 2, 3, 4]
    torch.testing.assert_close(found, layers[1](layers[0](x)))


def test_before_training_nobody_leaves() -> None:
    for halting in KINDS:
        assert (halted(model(trained=False, halting=halting)) == LAYERS).all()


def test_in_training_every_token_takes_all_layers() -> None:
    assert (halted(model().train()) == LAYERS).all()


def test_one_exit_for_all_tokens() -> None:
    made = model()
    with every_exit() as found, torch.no_grad():
        made(TOKENS)
    for n in (1, 3, LAYERS):
        made.decoder.depth.leave_after = n
        assert (halted(made) == n).all()
        with torch.no_grad():
            torch.testing.assert_close(made(TOKENS), made.logits(found[0].states[n - 1]))


def test_exits_that_are_not_trained_are_refused() -> None:
    with pytest.raises(ValueError, match=r"exits that are not trained.*objective='aligned_exits'"):
        model(trained=False, leave_after=2)(TOKENS)
    with pytest.raises(ValueError, match="leave_after should be at most layers=4, got 5"):
        model(leave_after=5)


def test_a_file_knows_that_the_exits_are_trained(tmp_path: Any) -> None:
    made = model().float()
    made.save(tmp_path / "model.safetensors")
    again = TinyTransformer.load(tmp_path / "model.safetensors").eval()
    assert torch.equal(halted(again), halted(made))
    assert again.decoder.depth.trained


def test_learning_to_leave_changes_no_layer() -> None:
    made = model()
    with every_exit() as found:
        made(TOKENS)
    assert found[0].leaving is not None
    found[0].leaving[..., 0].sum().backward()
    with_gradient = {name for name, p in made.named_parameters() if p.grad is not None}
    assert with_gradient == {"decoder.depth.scores.weight", "decoder.depth.scores.bias"}


def test_the_last_norm_is_that_of_the_joins() -> None:
    assert isinstance(model().decoder.norm, nn.Identity)
    assert isinstance(model().decoder.depth.norm, nn.LayerNorm)
