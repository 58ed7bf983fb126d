"""Documents read side by side: who continues whom, what is carried, and what is stored."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import UNSCORED, task
from attnlab.train import CheckpointError, evaluate, fit, load_checkpoint
from attnlab.train.documents import Documents
from attnlab.train.segments import next_logits

LENGTHS, VOCAB, SEGMENT = (12, 4, 7, 2, 17), 11, 6
OPTIONS = {"batch_size": 3, "progress": False, "device": "cpu", "segment": SEGMENT}


def texts() -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(VOCAB, (n,), generator=draw) for n in LENGTHS]


@dataclass(frozen=True)
class Shelf:
    """A task of documents; the first token of each tells which it is."""

    given: list[Tensor] = field(default_factory=texts)
    name: ClassVar[str] = "shelf"
    kind: ClassVar[str] = "language_model"
    vocab: ClassVar[int] = VOCAB

    def documents(self, split: str) -> list[Tensor]:
        return self.given

    def batch(self, split: str, size: int, seed: int):
        raise AssertionError("documents are read in segments")


OF_LAYERS = {
    "transformer_xl": {"segment": 3, "memory": 4},
    "compressive_transformer": {"segment": 2, "memory": 2, "compressed": 1, "rate": 2},
    "memorizing_transformer": {"segment": 3, "cache": 2, "memory": 4, "neighbours": 2},
    "block_recurrent": {"block": 3, "states": 2},
    "rwkv": {},
    "lstm": {},
    "nbrc": {},
    "linear": {},
}
by_layer = pytest.mark.parametrize("attention", OF_LAYERS)


def model(attention: str, **options) -> TinyTransformer:
    torch.manual_seed(0)
    sizes = {"vocab": VOCAB, "dim": 12, "heads": 2, "layers": 2, "max_len": 18, **options}
    given = OF_LAYERS.get(attention)
    return TinyTransformer(attention=attention, attention_options=given, **sizes).double()


def losses(history) -> list[float]:
    return history.column("loss")


# ---- which segments make a batch


def test_each_row_reads_a_document_to_its_end_and_then_the_next() -> None:
    stream = Documents(Shelf(), "train", 2, SEGMENT, seed=0)
    read: list[list[int]] = []
    rows: list[list[int]] = [[], []]
    for index in range(12):
        batch, scored, largest = stream.draw(index)
        assert scored == (batch.targets != UNSCORED).sum()
        assert largest == batch.targets.max()
        for b in range(2):
            if batch.begins[b] and rows[b]:
                read.append(rows[b])
            if batch.begins[b]:
                rows[b] = [int(batch.inputs[b, 0])]
            kept = batch.targets[b] != UNSCORED
            assert rows[b][-1] == batch.inputs[b, 0]
            assert torch.equal(batch.inputs[b, 1:][kept[1:]], batch.targets[b, :-1][kept[1:]])
            assert not batch.inputs[b][~kept].any()
            rows[b] += batch.targets[b][kept].tolist()
    whole = [document.tolist() for document in texts()]
    assert sorted(map(len, read[:5])) == sorted(LENGTHS)
    assert all(document in whole for document in read)


def test_a_batch_is_a_function_of_its_number() -> None:
    one, other = (Documents(Shelf(), "train", 3, SEGMENT, seed=1) for _ in range(2))
    late = one.draw(9).batch
    again = [other.draw(index).batch for index in (2, 9, 4, 9)]
    assert torch.equal(again[1].inputs, late.inputs)
    assert torch.equal(again[3].begins, late.begins)
    assert torch.equal(one.draw(4).batch.targets, again[2].targets)


def test_each_round_has_an_order_of_its_own() -> None:
    def order(seed: int) -> list[list[int]]:
        stream = Documents(Shelf([torch.tensor([i, 0]) for i in range(9)]), "train", 1, 4, seed)
        drawn = [int(stream.draw(index).batch.inputs[0, 0]) for index in range(18)]
        assert sorted(drawn[:9]) == sorted(drawn[9:]) == list(range(9))
        return [drawn[:9], drawn[9:]]

    first, second = order(0)
    assert first != second
    assert order(0) == [first, second]
    assert order(1)[0] != first


# ---- what is carried


def read_documents(made: TinyTransformer, count: int) -> list[tuple[list[int], Tensor]]:
    """Each document that two rows read to its end, with its logits."""
    stream, state = Documents(Shelf(), "train", 2, SEGMENT, seed=0), None
    found, rows = [], [([], []), ([], [])]
    for index in range(count):
        batch = stream.draw(index).batch
        logits, state = next_logits(made, batch, state)
        for b in range(2):
            if batch.begins[b]:
                if rows[b][0]:
                    found.append((rows[b][0], torch.cat(rows[b][1])))
                rows[b] = ([], [])
            kept = batch.targets[b] != UNSCORED
            rows[b][0].extend(batch.inputs[b][kept].tolist())
            rows[b][1].append(logits[b][kept])
    return found


@by_layer
@pytest.mark.parametrize("positions", ["none", "learned"])
def test_a_document_is_read_as_if_it_stood_alone(attention: str, positions: str) -> None:
    """Whatever stood in its row before; positions start at 0 as well."""
    made = model(attention, positions=positions).eval()
    with torch.no_grad():
        found = read_documents(made, 12)
        assert len(found) > 5
        for tokens, logits in found:
            alone = made(torch.tensor([tokens]))[0]
            torch.testing.assert_close(logits, alone)


def test_gradients_do_not_cross_the_border_of_two_batches() -> None:
    made, seen = model("rwkv"), []

    def keep(part, given, out) -> None:
        out.retain_grad()
        seen.append(out)

    made.embedding.register_forward_hook(keep)
    stream = Documents(Shelf(), "train", 2, SEGMENT, seed=0)
    first, state = next_logits(made, stream.draw(0).batch, None)
    second, state = next_logits(made, stream.draw(1).batch, state)
    assert not any(part.requires_grad for layer in state.layers for part in layer)
    second.square().sum().backward()
    assert seen[0].grad is None
    assert (seen[1].grad != 0).any()
    assert first.requires_grad


def test_the_learned_start_of_a_document_gets_its_gradient() -> None:
    made = model("block_recurrent")
    stream, state = Documents(Shelf(), "train", 2, SEGMENT, seed=0), None
    start = made.decoder.blocks[0].attention.start
    for index in range(6):
        batch = stream.draw(index).batch
        logits, state = next_logits(made, batch, state)
        (gradient,) = torch.autograd.grad(logits.square().sum(), start, allow_unused=True)
        assert (gradient is not None and (gradient != 0).any()) == bool(batch.begins.any())


def test_fit_carries_its_state_from_step_to_step() -> None:
    """With a rate that changes nothing, its losses are those of reading on."""
    made, state = model("rwkv").eval(), None
    stream = Documents(Shelf(), "train", 3, SEGMENT, seed=0)
    wanted = []
    for index in range(6):
        batch = stream.draw(index).batch
        logits, state = next_logits(made, batch, state)
        wanted.append(nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()))
    history = fit(made, Shelf(), 6, learning_rate=1e-300, weight_decay=0, **OPTIONS)
    assert losses(history) == pytest.approx([loss.item() for loss in wanted])
    count = sum(stream.draw(index).scored for index in range(6))
    assert history.rows[-1]["tokens"] == count


# ---- going on


@by_layer
def test_a_run_goes_on_bit_for_bit(attention: str, tmp_path) -> None:
    """With dropout, and a state in the middle of documents."""
    unbroken = model(attention, dropout=0.2)
    straight = fit(unbroken, Shelf(), 7, **OPTIONS)
    for stop in (lambda state: state.step < 4, lambda state: True):
        made = model(attention, dropout=0.2)
        resumed = fit(made, Shelf(), 7, folder=tmp_path, callbacks=[stop], **OPTIONS)
        assert load_checkpoint(tmp_path).carried
    assert losses(resumed) == losses(straight)
    for mine, theirs in zip(made.parameters(), unbroken.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_what_was_carried_is_part_of_the_run(tmp_path) -> None:
    """Without it the next loss is another one, and a damaged file is refused."""
    fit(model("rwkv"), Shelf(), 7, folder=tmp_path, callbacks=[lambda s: s.step < 4], **OPTIONS)
    (path,) = tmp_path.glob("step-*/carried.safetensors")
    carried = load_checkpoint(tmp_path).carried
    assert carried["layers/0/values"].shape == (3, 12)
    assert int(carried["position"]) == 4 * SEGMENT
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"'carried.safetensors' has been damaged"):
        fit(model("rwkv"), Shelf(), 7, folder=tmp_path, **OPTIONS)


# ---- evaluation


@by_layer
def test_evaluation_reads_documents_from_their_beginning(attention: str) -> None:
    """Five rows of one round: every document once, each as if it stood alone."""
    made = model(attention).eval()
    found = evaluate(made, Shelf(), batches=4, batch_size=5, segment=SEGMENT)
    total = sum(LENGTHS) - len(LENGTHS)
    stream = Documents(Shelf(), "validation", 5, SEGMENT, seed=0)
    read = [stream.draw(index) for index in range(4)]
    assert found.targets == sum(drawn.scored for drawn in read) >= total
    state, loss = None, 0.0
    for drawn in read:
        logits, state = next_logits(made, drawn.batch, state)
        wanted = drawn.batch.targets.flatten()
        loss += nn.functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum").item()
    assert found.loss == pytest.approx(loss / found.targets)
    again = evaluate(made, Shelf(), batches=4, batch_size=5, segment=SEGMENT)
    assert again == found


def test_evaluation_of_rows_in_segments_is_that_of_whole_rows() -> None:
    copying = task("copying", items=6, symbols=5)
    made = model("rwkv", **copying.model_options())
    whole, cut = (evaluate(made, copying, segment=segment) for segment in (None, 5))
    assert cut.loss == pytest.approx(whole.loss, rel=1e-9)
    assert cut.targets == whole.targets


def test_fit_evaluates_in_segments_too() -> None:
    made = model("rwkv")
    history = fit(made, Shelf(), 2, evaluate_every=2, evaluate_batches=3, **OPTIONS)
    found = evaluate(made, Shelf(), batches=3, batch_size=3, segment=SEGMENT)
    assert history.rows[-1]["validation_loss"] == pytest.approx(found.loss)


# ---- refusals


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ({"given": []}, {}, "it gave an empty list"),
        ({"given": {}}, {}, "list of tensors of tokens; it gave a dict"),
        ({"given": [torch.tensor([3])]}, {}, r"at least two tokens.*int64 of shape \(1,\)"),
        ({"given": [torch.rand(5)]}, {}, r"torch.float32 of shape \(5,\)"),
        ({"given": [[1, 2]]}, {}, "it gave a list"),
        ({"given": [torch.zeros(20).long()]}, {}, "4 segments of 6, 24 positions, more than .*=18"),
        ({}, {"accumulate": 3}, "accumulate=3 would part the rows of a batch"),
    ],
)
def test_documents_that_cannot_be_read_are_refused(given, options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(model("rwkv"), Shelf(**given), 1, **{**OPTIONS, **options})
    if not options:
        with pytest.raises(ValueError, match=sentence):
            evaluate(model("rwkv"), Shelf(**given), segment=SEGMENT)


def test_models_that_cannot_begin_a_new_document_are_refused() -> None:
    class Advancing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model("rwkv")
            self.advance = self.inner.advance

    with pytest.raises(ValueError, match=r"by cleared\(state, ended\).*Advancing has none"):
        fit(Advancing(), Shelf(), 1, **OPTIONS)
    with pytest.raises(ValueError, match="FullAttention keeps a state that cannot be cleared"):
        fit(model("full"), Shelf(), 1, **OPTIONS)
    with pytest.raises(ValueError, match="segment should be a whole number of at least 1; 0 was"):
        evaluate(model("rwkv"), Shelf(), segment=0)


def test_the_state_of_another_model_is_refused(tmp_path) -> None:
    """Its weights are equal in shape, so only what it carries tells."""
    made = model("transformer_xl")
    _, state = made.advance(torch.zeros(1, 3, dtype=torch.int64))
    from attnlab.train.states import restored, stored

    tensors = stored(state)
    assert torch.equal(restored(state, tensors, "It").layers[0].segment, state.layers[0].segment)
    with pytest.raises(CheckpointError, match=r"^It holds 'layers/1/"):
        restored(state._replace(layers=state.layers[:1]), tensors, "It")
    del tensors["position"]
    with pytest.raises(CheckpointError, match=r"^It lacks 'position'"):
        restored(state, tensors, "It")
