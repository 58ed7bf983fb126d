"""CompressionLab: what it is given, what follows, and the cases that hold the page to Python."""

import contextlib
import itertools
import json
import re
from base64 import b64decode, b64encode
from pathlib import Path

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.compression_lab import MODEL, CompressionLab, grids, networks, words
from attnlab_widgets.compression_lab.example import example

import attnlab
from attnlab import pretrained
from attnlab.compression.units import units_of
from attnlab.experiments import students
from attnlab.lens import smaller
from attnlab.models.tiny import TinyTransformer
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write

FILE = "compression.json"


def model_of(kind: str, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        given = {"classes": 3} if "classifier" in kind else {}
        sizes = {"dim": 6, "layers": 2, "heads": 2, "hidden": 5, "max_len": 16, **options}
        made = TinyTransformer(kind=kind, **given, **sizes)
        for p in made.parameters():  # no two weights alike, and biases that count
            p.data += 0.2 * torch.randn_like(p)
        return made


def labs():
    tokens = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
    features = torch.rand(4, 7, 2, generator=torch.Generator().manual_seed(2))
    yield CompressionLab(model_of("classifier", vocab=11), tokens, [0, 1, 2, 0, 1])
    yield CompressionLab(model_of("language_model", vocab=11, positions="sinusoidal"), tokens)
    yield CompressionLab(model_of("classifier", features=2), features, [0, 1, 2, 0])


@contextlib.contextmanager
def few_settings():
    """Shares and bits of which some cut no head more than those before; all of them are stored for
    the shipped models, and every one of them would be measured here."""
    every = grids.SHARES, grids.BITS
    grids.SHARES, grids.BITS = (1.0, 0.5, 0.3, 0.2), (32, 8, 4, 3)
    try:
        yield
    finally:
        grids.SHARES, grids.BITS = every


@few_settings()
def cases():
    found = []
    for lab in labs():
        states = []
        for cut, (kept, bits, per) in itertools.product(
            smaller.CUTS, [(0.5, 32, "tensor"), (1.0, 3, "channel"), (0.3, 4, "tensor"),
                           (0.2, 8, "channel")],
        ):  # fmt: skip
            lab.cut, lab.kept, lab.bits, lab.per = cut, kept, bits, per
            lab.matrix = lab._told["matrices"][len(states) % len(lab._told["matrices"])]
            layer = lab.compressed().get_submodule(lab.matrix.removesuffix(".weight"))
            maps = [each.flatten().tolist() for each in lab.maps()[1]]
            states.append(
                {
                    "state": {name: getattr(lab, name) for name in STATE},
                    "score": list(lab.score()),
                    "size": lab.bytes(),
                    "weights": layer.weight.flatten().tolist(),
                    "maps": maps,
                    "said": lab.description(),
                }
            )
        numbers = b64encode(lab._numbers).decode()
        found.append({"lab": lab._lab, "numbers": numbers, "scores": lab._scores, "states": states})
        lab.close()
    return found


STATE = ("student", "kept", "bits", "cut", "per", "matrix", "layer", "head", "example")


def test_the_page_s_cases_are_those_of_python() -> None:
    assert_fresh(FILE, cases(), NEAR_FLOAT32, opened)


def opened(found):
    """The weights as numbers: PyTorch draws their last digits as the processor computes them."""
    return [
        {**one, "numbers": np.frombuffer(b64decode(one["numbers"]), "<f4").tolist()}
        for one in found
    ]


def test_what_is_cut_is_what_the_pages_of_compression_cut() -> None:
    model = model_of("classifier", vocab=11)
    how = smaller.Settings(cut="all weights", kept=0.4)
    page = attnlab.build("magnitude_pruning", kept=0.4, scope="global")
    masked = page(model)
    ours = smaller.compressed(model, how)
    for name, p in page.remove(masked).named_parameters():
        torch.testing.assert_close(dict(ours.named_parameters())[name], p)
    others = sum(
        4 * p.numel() for n, p in model.named_parameters() if p.dim() == 1 or "position" in n
    )
    table = 4 * model.embedding.weight.numel()
    assert smaller.size_of(model, how) == page.bytes(masked) + others + table


def test_bytes_of_rounding_alone_and_of_units_are_those_of_their_pages() -> None:
    model = model_of("classifier", vocab=11)
    rest = sum(4 * p.numel() for n, p in model.named_parameters() if p.dim() == 1 or "posi" in n)
    page = attnlab.build("quantization", bits=3, per="channel")
    how = smaller.Settings(bits=3, per="channel")
    assert smaller.size_of(model, how) == page.bytes(page(model)) + rest
    units = attnlab.build("structured_pruning", kept=0.4, units="hidden")
    cut = units(model)
    gone = 4 * 2 * 3  # biases of three of five hidden units in two layers
    table = 4 * model.embedding.weight.numel()
    how = smaller.Settings(cut="hidden units", kept=0.4)
    assert smaller.size_of(model, how) == units.bytes(cut) + rest + table - gone


def test_heads_go_in_the_order_of_their_importance() -> None:
    lab = next(labs())
    lab.cut, lab.kept = "heads", 0.5
    first, second = lab.order[:2]
    masked = smaller.pruned(lab.network, lab.settings, lab.order)
    left = [place.left() for place in units_of(masked) if place.kind == "heads"]
    gone = [(layer, head) for layer, kept in enumerate(left) for head in range(2) if not kept[head]]
    assert gone == sorted([first, second])


def test_an_interval_is_wilson_s_and_holds_the_share() -> None:
    low, high = smaller.interval(7, 20)
    for end in (low, high):  # where the share lies 1.96 standard errors from the seven of twenty
        assert abs(7 / 20 - end) == pytest.approx(1.96 * (end * (1 - end) / 20) ** 0.5)
    assert smaller.interval(0, 5)[0] == 0
    assert smaller.interval(5, 5)[1] == 1


def test_the_shipped_model_of_digits_with_its_students() -> None:
    lab = CompressionLab(kept=0.5)
    right = smaller.right_answers(lab.compressed(), lab._inputs, lab._labels)
    assert lab.score()[0] == pytest.approx(float(right.mean()), abs=0.012)  # of another processor
    assert lab.whole_score() == pytest.approx(0.955, abs=0.01)
    for name in students.GRID.arms:
        lab.student = name
        own = lab._told["seeds"]
        lab.kept, lab.bits = 1.0, 32
        assert 100 * lab.score()[0] == pytest.approx(own[0], abs=0.6)  # kept in half precision
        assert lab.bytes() == 4 * sum(p.numel() for p in lab.network.parameters())
    page = lab.page("digits")
    assert len(page) < 1_000_000
    script = re.search(r'<script type="module">(.*)</script>', page, re.DOTALL)[1]
    assert len(script) < 300_000


def test_the_shipped_language_model() -> None:
    lab = CompressionLab("documentation", kept=0.6, bits=8)
    middle, low, high = lab.score()
    assert low < middle < high
    assert "passages" in lab.description()
    assert lab.maps()[0][0].shape[0] == 4
    assert np.triu(lab.maps()[1][0][0].numpy(), 1).sum() == 0


def test_a_model_that_the_page_does_not_run_has_maps_of_python() -> None:
    tokens = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
    model = model_of("classifier", vocab=11, positions="alibi")
    lab = CompressionLab(model, tokens, [0, 1, 2, 0, 1])
    assert lab._told["run"] is None
    before = lab._maps
    assert len(before) == 2 * 2 * 2 * 7 * 7
    lab.kept = 0.3
    assert lab._maps != before
    assert lab._mapped == "the model|all weights|0.3|32|tensor|0"
    without = CompressionLab(model_of("classifier", vocab=11, attention="fnet"), tokens, [0] * 5)
    assert without._maps == b""
    assert "no attention weights" in without.still().svg("")
    assert without._told["cuts"] == ["all weights", "each matrix", "hidden units"]


@pytest.mark.parametrize(
    "options",
    [
        {"attention_options": {"scale": 1.0}},
        {"feed_options": {"curve": "relu"}},
        {"feed_options": {"bias": False}},
    ],
)
def test_the_page_runs_no_other_scale_or_curve(options):
    small = {"dim": 12, "heads": 2, "layers": 1, "max_len": 8}
    assert networks.runs(TinyTransformer(11, **small)) is not None
    assert networks.runs(TinyTransformer(11, **small, **options)) is None


def test_another_student_has_layers_and_heads_of_its_own() -> None:
    lab = example()
    lab.layer = lab.head = 1
    small = TinyTransformer(29, dim=8, layers=1, heads=1, kind="classifier", classes=5, max_len=32)
    lab = CompressionLab(
        lab.network, lab._inputs, lab._labels, students={"tiny": small}, kept=0.4, cut="heads"
    )
    lab.layer, lab.head, lab.matrix = 1, 1, "encoder.blocks.1.attention.heads.key.weight"
    lab.student = "tiny"
    assert (lab.layer, lab.head) == (0, 0)
    assert lab.matrix in lab._told["matrices"]


WRONG = [
    ({"kept": 0.55}, "kept` should be one of 1, 0.9"),
    ({"bits": 5}, "bits` should be one of 32, 8"),
    ({"student": "16 wide"}, "student"),
    ({"layer": 2}, "layer` should be 0 to 1"),
    ({"example": 9}, "example` should be 0 to 5"),
    ({"matrix": "embedding"}, "matrix"),
]


def test_what_cannot_be_set_is_said() -> None:
    lab = example()
    for given, said in WRONG:
        (name, value), *_ = given.items()
        before = getattr(lab, name)
        with pytest.raises(traitlets.TraitError, match=said):
            setattr(lab, name, value)
        assert getattr(lab, name) == before


TOKENS = torch.zeros(3, 4, dtype=torch.int64)
BAD = [
    (("mnist",), {}, "model"),
    (("digits", TOKENS), {}, "`inputs` is for a model of your own"),
    ((3,), {}, "should be a TinyTransformer"),
    ((model_of("classifier", vocab=11),), {}, "`inputs` are what the model is asked about"),
    ((model_of("classifier", vocab=11), TOKENS), {}, "`labels` are the right answers"),
    ((model_of("classifier", vocab=11), TOKENS, [0, 1]), {}, r"of shape \(3,\)"),
    ((model_of("classifier", vocab=11), TOKENS, [0, 1, 3]), {}, "should be 0 to 2"),
    ((model_of("classifier", vocab=11), TOKENS[:1], [0]), {}, "2 to 2,000 rows"),
    ((model_of("language_model", vocab=11), TOKENS, [0, 1, 2]), {}, "leave `labels` out"),
    ((model_of("language_model", vocab=11), TOKENS), {"names": ["a"]}, "name the 11 tokens"),
    ((model_of("encoder_decoder", vocab=11), TOKENS), {}, "reads two sequences"),
    ((model_of("classifier", vocab=11), TOKENS, [0, 1, 2]),
     {"students": {"one": model_of("language_model", vocab=11)}}, "answer as the model does"),
    ((model_of("classifier", vocab=11), TOKENS, [0, 1, 2]),
     {"students": {"a\ud800": model_of("classifier", vocab=11)}}, "a printable name of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "named", "said"), BAD)
def test_what_cannot_be_shown_is_said(given, named, said) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        CompressionLab(*given, **named)


def test_nan_and_a_way_of_cutting_that_a_model_does_not_have() -> None:
    model = model_of("classifier", vocab=11)
    model.output.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        CompressionLab(model, TOKENS, [0, 1, 2])
    plain = CompressionLab(model_of("classifier", vocab=11, attention="fnet"), TOKENS, [0, 1, 2])
    with pytest.raises(traitlets.TraitError, match="has no heads that could be cut"):
        plain.cut = "heads"


def test_numbers_are_packed_in_half_precision_only_where_nothing_is_lost() -> None:
    exact, other = torch.tensor([[0.5, -2.0]]), torch.tensor([[0.1, 1.0]])
    packed = networks.Packed()
    assert packed.add({"a": exact}) == (True, [["a", [1, 2], 0]])
    assert packed.add({"b": other}) == (False, [["b", [1, 2], 4]])
    assert np.frombuffer(packed.all()[4:], "<f4").tolist() == other[0].tolist()


def test_sizes_and_shares_are_rounded_alike_everywhere() -> None:
    assert [words.size(n) for n in (49, 50, 42_376)] == ["0.0 kB", "0.1 kB", "42.4 kB"]
    assert [words.share(x) for x in (0, 0.9549, 1)] == ["0.0 %", "95.5 %", "100.0 %"]


def test_stored_grids_are_of_all_shares_and_bits() -> None:
    found = grids.stored()
    assert set(found) == {"digits", "documentation"}
    for own in found.values():
        names = {name.split("|")[0] for name in own["grids"]}
        assert names == set(own["orders"])
        for name in names:  # what is shown first is stored of every network
            assert {f"{name}|all weights|{per}" for per in grids.PERS} <= set(own["grids"])
        for grid in own["grids"].values():
            for values in grid.values():
                assert len(values) == len(grids.SHARES) * len(grids.BITS)
    assert set(found["digits"]["orders"]) == {MODEL, *students.GRID.arms}
    assert Path(grids.STORED).stat().st_size < 200_000
    json.dumps(found, allow_nan=False)


def test_students_answer_as_their_rows_say() -> None:
    teacher = pretrained.load("digits")[0]
    batch = students.unseen()
    quick = students.Remembering(teacher)
    with torch.no_grad():
        wanted = teacher(batch.inputs[:9])
        for _ in range(2):
            torch.testing.assert_close(quick(batch.inputs[:9]), wanted)
    assert len(quick.known) == 9


if __name__ == "__main__":
    write(FILE, cases())
