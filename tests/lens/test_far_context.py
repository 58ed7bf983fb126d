"""What the far context is worth, on models whose use of it is known exactly."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.lens.far_context import CLASSES, PERTURBATIONS, far_context, token_classes
from attnlab.models.tiny import TinyTransformer

VOCAB, B, N, LAST = 29, 5, 43, 7
START = N - LAST


def texts(seed: int = 0, b: int = B, n: int = N, vocab: int = VOCAB) -> Tensor:
    return torch.randint(vocab, (b, n), generator=torch.Generator().manual_seed(seed))


def window_model(w: int) -> Any:
    """Logits that depend on the newest ``w`` tokens, in their order, and on nothing else."""
    tables = torch.randn(w, VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))

    def model(tokens: Tensor) -> Tensor:
        padded = F.pad(tokens, (w - 1, 0))
        return sum(tables[back, padded[:, w - 1 - back : padded.shape[1] - back]]
                   for back in range(w))  # type: ignore[return-value]  # fmt: skip

    return model


class Spy:
    """Logits of zeros; keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[Tensor] = []

    def __call__(self, tokens: Tensor) -> Tensor:
        self.given.append(tokens)
        return torch.zeros(*tokens.shape, VOCAB)


# ---- the definition of the far part, and its changes


def test_a_window_shows_exactly_no_change_beyond_it() -> None:
    w = 6
    found = far_context(window_model(w), texts(), last=LAST, distances=(w - 1, w, w + 1, 20))
    for at, distance in enumerate(found.distances):
        same = found.differences[at] == 0
        assert bool(same.all()) == (distance >= w)
    first = found.differences[0]  # one token too near, and only the first measured token sees it
    assert (first[..., 0] != 0).float().mean() > 0.8
    assert (first[..., 1:] == 0).all()
    assert (found.table().difference[0, 1:] == 0).all()


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "longformer", "attention_options": {"window": 8}, "positions": "learned"},
        {"attention": "transformer_xl", "attention_options": {"segment": 4, "memory": 4},
         "positions": "none"},
    ],
    ids=["longformer", "transformer_xl"],
)  # fmt: skip
def test_models_of_the_shelf_do_not_see_beyond_their_reach(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = TinyTransformer(VOCAB, dim=8, heads=2, layers=2, max_len=64, **options)
    n = 45  # 44 inputs: whole segments, before and after a cut by multiples of four
    found = far_context(model, texts(n=n), last=LAST, distances=(2, 4, 14))
    moved = 0 if options["positions"] == "none" else 1  # a cut moves absolute positions
    size = found.differences.abs().amax((2, 3))[:, moved:]
    assert (size[0] > 1e-3).all()
    assert (size[2] < 1e-5).all()
    assert model.training


def test_what_stands_in_the_place_of_the_far_part() -> None:
    tokens, spy = texts(), Spy()
    other = texts(9, n=31)
    found = far_context(spy, tokens, last=LAST, distances=(5, 11), other=other, seed=3)
    whole, *rest = spy.given
    assert torch.equal(whole, tokens[:, :-1])
    assert found.changed.shape == (2, 4, B, LAST)
    for distance in (5, 11):
        far = START - distance
        cut, shuffled, replaced, drawn = (rest.pop(0) for _ in PERTURBATIONS)
        assert torch.equal(cut, tokens[:, far:-1])
        for given in (shuffled, replaced, drawn):
            assert torch.equal(given[:, far:], tokens[:, far:-1])
        assert torch.equal(shuffled[:, :far].sort(1).values, tokens[:, :far].sort(1).values)
        assert not torch.equal(shuffled[:, :far], tokens[:, :far])
        assert torch.equal(replaced[:, :far], other[:, :far])
        assert 0.02 < (drawn[:, :far] == tokens[:, :far]).float().mean() + 0.02 < 0.2
    assert rest == []


def test_without_others_the_next_sequence_replaces_the_far_part() -> None:
    tokens, spy = texts(), Spy()
    far_context(spy, tokens, last=LAST, distances=(5,), perturbations=["replace"])
    far = START - 5
    assert torch.equal(spy.given[1][:, :far], tokens[[1, 2, 3, 4, 0], :far])


def test_random_tokens_are_as_frequent_as_among_the_given() -> None:
    tokens = torch.where(texts(2, b=40) < 6, 0, 1 + texts(3, b=40) % 2)
    spy = Spy()
    far_context(spy, tokens, last=LAST, distances=(5,), perturbations=["random"])
    drawn = torch.cat(spy.given[len(spy.given) // 2 :])[:, : START - 5]
    for token in (0, 1, 2):
        share, wanted = (drawn == token).float().mean(), (tokens == token).float().mean()
        assert abs(share - wanted) < 0.05


def test_the_seed_is_that_of_the_draws_and_of_nothing_else() -> None:
    model, tokens = window_model(9), texts()
    before = torch.get_rng_state()
    first, again, other = (
        far_context(model, tokens, last=LAST, distances=(5,), seed=seed).changed[0]
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    same = [torch.equal(first[at], other[at]) for at in range(4)]
    assert same == [True, False, True, False]  # cut and replace draw nothing


def test_losses_are_those_of_the_last_tokens() -> None:
    model, tokens = window_model(3), texts()
    found = far_context(model, tokens, last=LAST, distances=(9,))
    logits = model(tokens)
    for b in range(B):
        for at in range(LAST):
            i = START + at
            wanted = -logits[b, i - 1].log_softmax(-1)[tokens[b, i]]
            assert float(found.intact[b, at]) == pytest.approx(float(wanted), rel=1e-5)


# ---- a model that copies


def copying(tokens: Tensor) -> Tensor:
    """After an even token that stood before: what followed it then, almost certainly; else all
    tokens are equally probable."""
    b, n = tokens.shape
    logits = torch.zeros(b, n, VOCAB + 1)
    for row in range(b):
        for i in range(n):
            for j in range(i - 1, -1, -1):
                if tokens[row, i] == tokens[row, j] and tokens[row, i] % 2 == 0:
                    logits[row, i, tokens[row, j + 1]] = 9.0
                    break
    return logits


def pairs(*numbers: int) -> list[int]:
    return [token for number in numbers for token in (2 * number, 2 * number + 1)]


def test_a_copying_model_loses_on_copied_tokens_only() -> None:
    """Pairs stand far before (0, 1, 2), near (3), or nowhere (9, 10); only 2k + 1 is copied."""
    far, near, measured = pairs(0, 1, 2, 5, 6), pairs(7, 3), pairs(1, 9, 3, 10, 0)
    tokens = torch.tensor([far + near + measured, pairs(6, 0, 2, 1, 5) + near + measured])
    other = torch.tensor([pairs(4, 8, 11, 12, 13)] * 2)
    found = far_context(copying, tokens, last=10, distances=(4,), other=other, run=2)
    copied = torch.tensor([False, True] + 7 * [False] + [True]).expand(2, -1)
    members = dict(zip(CLASSES, found.members[:, 0], strict=True))
    assert torch.equal(members["far"], copied)
    assert torch.equal(
        members["near"], torch.tensor([0, 0, 0, 0, 0, 1, 0, 0, 0, 0]).bool().expand(2, -1)
    )
    for way in ("cut", "replace"):
        differences = found.differences[0, PERTURBATIONS.index(way)]
        assert (differences[copied] > 3).all()
        assert (differences[~copied] == 0).all()
        assert found.difference("far", 4, way) == pytest.approx(float(differences[copied].mean()))
        for token_class in ("near", "new"):
            assert found.difference(token_class, 4, way) == 0


# ---- the classes and the numbers


@pytest.mark.parametrize("run", [1, 2, 3])
def test_classes_by_a_loop(run: int) -> None:
    tokens, distance = texts(4, vocab=11), 9
    counts = torch.tensor([5, 0, 9, 9, 1, 2, 2, 8, 8, 8, 3])
    found = token_classes(tokens, last=LAST, distance=distance, counts=counts, run=run)
    for b in range(B):
        row = tokens[b].tolist()
        for at in range(LAST):
            i = START + at
            places = [
                j for j in range(run - 1, i) if row[j - run + 1 : j + 1] == row[i - run + 1 : i + 1]
            ]
            near = any(j - run + 1 >= START - distance for j in places)
            frequent = row[i] == 2  # one of ten tokens that occur; of 2 and 3 the first
            wanted = [
                True, frequent, not frequent, near, bool(places) and not near, not places,
            ]  # fmt: skip
            assert found[:, b, at].tolist() == wanted


def test_counts_are_those_of_the_given_tokens_unless_given() -> None:
    tokens = texts(5, vocab=23)
    counts = torch.bincount(tokens.flatten())
    most = counts.argsort(descending=True, stable=True)[:3]  # a tenth of 23, rounded up
    found = token_classes(tokens, last=LAST, distance=3)[CLASSES.index("frequent")]
    assert torch.equal(found, torch.isin(tokens[:, START:], most))


def test_the_table_by_a_loop() -> None:
    found = far_context(window_model(9), texts(6, vocab=13), last=LAST, distances=(3, 5, 8))
    table = found.table()
    for c, name in enumerate(CLASSES):
        for d, distance in enumerate(found.distances):
            member = found.members[c, d]
            assert table.counts[c, d] == member.sum()
            for p, way in enumerate(PERTURBATIONS):
                values = [found.differences[d, p, b][member[b]].double() for b in range(B)]
                every = torch.cat(values)
                if not len(every):
                    assert table.difference[c, d, p].isnan()
                    continue
                mean = every.mean()
                assert float(table.difference[c, d, p]) == pytest.approx(float(mean), abs=1e-9)
                assert found.difference(name, distance, way) == float(table.difference[c, d, p])
                assert float(table.intact[c, d]) == pytest.approx(
                    float(found.intact[member].double().mean())
                )
                own = [one for one in values if len(one)]
                if len(own) < 2:
                    assert table.error[c, d, p].isnan()
                    continue
                apart = sum(float((one - mean).sum()) ** 2 for one in own)
                error = math.sqrt(apart * len(own) / (len(own) - 1)) / len(every)
                assert float(table.error[c, d, p]) == pytest.approx(error, rel=1e-6, abs=1e-12)


def test_with_one_token_each_the_error_is_that_of_a_mean() -> None:
    found = far_context(window_model(9), texts(7, b=31), last=1, distances=(4,))
    values = found.differences[0, :, :, 0].double()
    wanted = values.std(dim=1) / math.sqrt(31)
    torch.testing.assert_close(found.table().error[0, 0], wanted)


def test_a_single_sequence_has_no_error() -> None:
    found = far_context(window_model(9), texts(b=1), last=3, distances=(4,), other=texts(1, b=1))
    assert found.table().error.isnan().all()
    assert found.table().difference[0].isfinite().all()


# ---- with a state, and as it is called


def test_reading_in_segments_gives_the_same() -> None:
    torch.manual_seed(0)
    model = TinyTransformer(
        VOCAB, dim=8, heads=2, layers=2, max_len=64, attention="transformer_xl",
        attention_options={"segment": 5, "memory": 5}, positions="none",
    )  # fmt: skip
    whole = far_context(model, texts(), last=LAST, distances=(3, 8))
    pieces = far_context(model, texts(), last=LAST, distances=(3, 8), segment=4)
    torch.testing.assert_close(pieces.changed, whole.changed)
    assert whole.differences.abs().max() > 1e-3


class Noisy(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return F.dropout(torch.ones(*tokens.shape, VOCAB), 0.5, self.training)


def test_a_module_is_in_evaluation_mode_meanwhile_and_has_its_own_mode_afterwards() -> None:
    model = Noisy()
    found = far_context(model, texts(), last=LAST, distances=(3,))
    torch.testing.assert_close(found.intact, torch.full((B, LAST), math.log(VOCAB)))
    assert model.training
    assert not found.intact.requires_grad


def test_more_sequences_than_are_read_at_once() -> None:
    model, tokens = window_model(4), texts(8, b=37)
    all_of_them = far_context(model, tokens, last=LAST, distances=(2,), perturbations=["cut"])
    some = far_context(model, tokens[30:], last=LAST, distances=(2,), perturbations=["cut"])
    assert torch.equal(all_of_them.changed[:, :, 30:], some.changed)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"last": 0}, ValueError, "last should be at least 1"),
        ({"distances": ()}, ValueError, "distances should rise"),
        ({"distances": (5, 3)}, ValueError, "distances should rise"),
        ({"distances": (0, 3)}, ValueError, "a distance should be at least 1"),
        ({"distances": (3, START)}, ValueError, f"less than n − last = {START}"),
        ({"perturbations": ["swap"]}, ValueError, "there is no perturbation 'swap'"),
        ({"perturbations": []}, ValueError, "at least one of cut"),
        ({"perturbations": ["cut"], "other": texts()}, ValueError, "other has no effect"),
        ({"tokens": texts().float()}, TypeError, "tensor of whole numbers"),
        ({"tokens": texts()[0]}, TypeError, "one row for each sequence"),
        ({"tokens": texts(b=1)}, ValueError, "give another one as other"),
        ({"other": texts(b=3)}, ValueError, "5 sequences of at least 31 tokens"),
        ({"other": texts(n=30)}, ValueError, "5 sequences of at least 31 tokens"),
        ({"counts": torch.ones(3)}, ValueError, "one number for each token of the vocabulary"),
        ({"run": 0}, ValueError, "run should be at least 1"),
        ({"segment": 4}, TypeError, "segment needs a model that reads on"),
        ({"seed": -1}, ValueError, "seed should be at least 0"),
        ({"model": lambda tokens: tokens}, ValueError, "logits of shape (b, n, vocab)"),
        ({"model": lambda tokens: "logits"}, ValueError, "got str"),
        ({"model": lambda tokens: torch.zeros(*tokens.shape, 7)}, ValueError, "vocabulary, 7"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: dict[str, Any], error: type, words: str) -> None:
    given = {"model": window_model(3), "tokens": texts(), "last": LAST, "distances": (5,)} | change
    model, tokens = given.pop("model"), given.pop("tokens")
    with pytest.raises(error, match=re.escape(words)):
        far_context(model, tokens, **given)


def test_a_number_that_was_not_measured_is_refused() -> None:
    found = far_context(window_model(3), texts(), last=LAST, distances=(5,), perturbations=["cut"])
    for given, words in (
        (("far", 6, "cut"), "one of those measured, 5, got 6"),
        (("common", 5, "cut"), "there is no class 'common'"),
        (("far", 5, "shuffle"), "there is no perturbation 'shuffle'"),
    ):
        with pytest.raises(ValueError, match=words):
            found.difference(*given)


def test_a_run_across_the_border_stands_in_the_far_part() -> None:
    tokens = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 3, 4]])
    for distance, wanted in ((4, "far"), (5, "near")):  # 3 and 4 stand at places 3 and 4
        found = token_classes(tokens, last=2, distance=distance, run=2)[:, 0, 1]
        assert found[CLASSES.index(wanted)], distance
