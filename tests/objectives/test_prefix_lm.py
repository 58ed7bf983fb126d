"""The prefix language model: what the prefix sees, and which tokens answer."""

from collections import Counter

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, B, N = 13, 3, 7


def text(rows: int = B, width: int = N, lengths: list[int] | None = None) -> Batch:
    torch.manual_seed(1)
    tokens = torch.randint(VOCAB, (rows, width + 1))
    if lengths is None:
        return Batch(tokens[:, :-1], tokens[:, 1:])
    padding = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Batch(tokens[:, :-1], tokens[:, 1:].masked_fill(~padding, UNSCORED), padding)


def model(kind: str = "language_model", **options: object):
    torch.manual_seed(2)
    classes = {} if kind == "language_model" else {"classes": VOCAB}
    given = {"dim": 12, "heads": 2, "layers": 2, "max_len": N, "kind": kind, **classes}
    return attnlab.TinyTransformer(VOCAB, **{**given, **options}).double()


def asked(batch: Batch, seed: int = 0, **options: object):
    with record() as notes:
        found = attnlab.build("prefix_lm", **options).prepare(
            batch, torch.Generator().manual_seed(seed)
        )
    return found, notes


def test_a_hand_made_example() -> None:
    found, notes = asked(text(1, 5), share=0.6)
    assert notes.last("open").tolist() == [[True, True, True, False, False]]
    assert found.structure.allowed.int()[0].tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    assert (found.targets != UNSCORED).tolist() == [[False, False, True, True, True]]
    assert torch.equal(found.targets[:, 2:], text(1, 5).targets[:, 2:])


@pytest.mark.parametrize("form", ["naive", "vectorised"])
def test_with_a_prefix_of_one_token_it_is_the_next_token(form: str) -> None:
    batch, made = text(lengths=[7, 4, 1]), model()
    options = attnlab.card("prefix_lm").arguments(
        attnlab.card("prefix_lm").forms[form], {"share": 0}
    )
    found = attnlab.card("prefix_lm").forms[form](made, batch, **options)
    expected = attnlab.build("next_token")(made, batch)
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1] == 12


def test_the_prefix_is_read_as_an_encoder_reads_it() -> None:
    decoder, encoder = model(), model("token_classifier")
    weights = {name.replace("decoder", "encoder"): x for name, x in decoder.state_dict().items()}
    encoder.load_state_dict(weights, strict=False)
    found, notes = asked(text(lengths=[7, 6, 2]), seed=3)
    out = decoder.decode(found.inputs, found.padding, structure=found.structure)
    lengths = notes.last("open").sum(-1).tolist()
    assert max(lengths) > 1
    for row, p in enumerate(lengths):
        alone = encoder.encode(found.inputs[row : row + 1, :p])
        torch.testing.assert_close(out[row, :p], alone[0])


def test_no_answer_is_seen() -> None:
    """Where an answer is scored, later tokens change nothing."""
    made = model()
    found, _ = asked(text(), seed=3)
    before = made(found.inputs, structure=found.structure)
    for t in range(N - 1):
        other = found.inputs.clone()
        other[:, t + 1 :] = (other[:, t + 1 :] + 1) % VOCAB
        after = made(other, structure=found.structure)
        scored = found.targets[:, t] != UNSCORED
        torch.testing.assert_close(after[scored, t], before[scored, t])
        assert not torch.isclose(after[~scored, t], before[~scored, t]).all(-1).any()


def test_both_forms_ask_a_real_model_the_same() -> None:
    card, made, batch = attnlab.card("prefix_lm"), model(), text(lengths=[7, 5, 2])
    for seed in range(4):
        one, other = (
            form(made, batch, torch.Generator().manual_seed(seed)) for form in card.forms.values()
        )
        torch.testing.assert_close(one[0], other[0])
        assert one[1] == other[1]


def test_each_length_is_as_likely_as_another() -> None:
    _, notes = asked(text(3000, 5, [3] * 3000))
    drawn = Counter(notes.last("open").sum(-1).tolist())
    assert sorted(drawn) == [1, 2, 3]
    assert all(900 < count < 1100 for count in drawn.values())  # four standard errors of 1,000


@pytest.mark.parametrize("share", [0, 1, None])
def test_short_and_empty_texts(share: float | None) -> None:
    batch = text(lengths=[1, 0, 2])
    found, notes = asked(batch, share=share)
    assert notes.last("open")[:, 0].all()
    assert (found.targets[0] != UNSCORED).tolist() == [True] + [False] * 6
    assert (found.targets[1] == UNSCORED).all()
    drawn = int(notes.last("open")[2].sum())
    assert (found.targets[2] != UNSCORED).sum() == 3 - drawn
    assert drawn in {0: (1,), 1: (2,), None: (1, 2)}[share]
    loss, count = attnlab.build("prefix_lm", share=share)(model(), batch[1:2])
    assert (loss.item(), count) == (0, 0)


def test_fit_learns_by_it() -> None:
    text_task = task("copying", symbols=5, items=5)
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(
        **model_options(text_task, "prefix_lm"), dim=16, heads=2, layers=1
    )
    before = evaluate(made, text_task, objective="prefix_lm").loss
    fit(
        made,
        text_task,
        40,
        batch_size=16,
        learning_rate=1e-2,
        objective="prefix_lm",
        progress=False,
    )
    assert evaluate(made, text_task, objective="prefix_lm").loss < 0.9 * before


class Table(torch.nn.Embedding):
    """A model that answers each token alone, and is told nothing."""

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(tokens)


def test_what_has_no_next_token_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"prefix_lm asks for the next token .* targets \(3,\)"):
        asked(Batch(text().inputs, text().inputs[:, 0]))
    with pytest.raises(ValueError, match=r"prefix_lm asks for the next token .* with a source"):
        asked(Batch(text().inputs, text().targets, source=text().inputs))
    with pytest.raises(ValueError, match="padding should stand at the end"):
        asked(Batch(text().inputs, text().targets, text(lengths=[5, 5, 5]).padding.flip(1)))
    with pytest.raises(ValueError, match="a Table is not told; its forward should take structure"):
        attnlab.build("prefix_lm")(Table(VOCAB, VOCAB), text())
    with pytest.raises(ValueError, match="share should be a share from 0 to 1, got 2"):
        attnlab.build("prefix_lm", share=2)
    copying = task("copying", symbols=5, items=5)
    options = {**copying.model_options(), "dim": 8, "heads": 2, "layers": 1}
    other = attnlab.TinyTransformer(**options, attention="longformer")
    with pytest.raises(ValueError, match="decides itself which token sees which"):
        fit(other, copying, 1, objective="prefix_lm", progress=False)
