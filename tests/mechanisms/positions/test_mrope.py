"""M-RoPE: a text is turned as by RoPE, an image by its rows and columns; as Transformers has it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import attnlab
from attnlab.mechanisms.positions.mrope import MRoPEOptions, naive, pairs
from attnlab.mechanisms.positions.rope import pairs as rope

D = 16
IMAGES = ((3, 1, 2, 4), (13, 2, 3, 2))
N = 30


def vectors(n: int = N, d: int = D) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 3, n, d).double(), torch.randn(2, 1, n, d).double()


@pytest.mark.parametrize(
    ("order", "sections"),
    [
        *(("blocks", given) for given in (None, (2, 3, 3), (8, 0, 0), (0, 3, 5))),
        *(("interleaved", given) for given in (None, (4, 2, 2), (3, 3, 2), (8, 0, 0))),
    ],
)
def test_a_text_is_turned_as_by_rope(order: Any, sections: Any) -> None:
    q, k = vectors()
    at = torch.randint(1000, (2, N))
    options = MRoPEOptions(order=order, sections=sections)
    for form in (naive, pairs):
        for ours, theirs in zip(form(q, k, at, options=options), rope(q, k, at), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_places_of_images_by_hand() -> None:
    found = MRoPEOptions(images=IMAGES).places(torch.arange(N)).tolist()
    assert found[:3] == [[0] * 3, [1] * 3, [2] * 3]
    first = [[3, 3 + r, 3 + c] for r in range(2) for c in range(4)]
    assert found[3:11] == first
    assert found[11:13] == [[7] * 3, [8] * 3]  # 3 + max(1, 2, 4)
    second = [[9 + f, 9 + r, 9 + c] for f in range(2) for r in range(3) for c in range(2)]
    assert found[13:25] == second
    assert found[25:] == [[12 + i] * 3 for i in range(5)]  # 9 + max(2, 3, 2)


def test_the_axis_of_each_pair() -> None:
    named = "thw"
    for options, wanted in (
        ({"sections": (2, 3, 3)}, "tthhhwww"),
        ({"sections": (3, 3, 2), "order": "interleaved"}, "thwthwth"),
        ({"order": "interleaved"}, "thwthwtt"),
        ({}, "tthhhwww"),
    ):
        axes = MRoPEOptions(**options).axes(16)
        assert "".join(named[axis] for axis in axes) == wanted
    published = (MRoPEOptions().axes(128), MRoPEOptions(order="interleaved").axes(128))
    assert [axes.bincount().tolist() for axes in published] == [[16, 24, 24], [24, 20, 20]]


def test_each_axis_turns_its_own_pairs() -> None:
    q, k = vectors(6)
    options = MRoPEOptions(sections=(2, 3, 3), images=((0, 1, 2, 3),))
    changed = (pairs(q, k, torch.arange(6), options=options)[0] - q).abs().amax((0, 1)) > 1e-9
    turns = changed.view(6, 2, D // 2).any(1)
    rows = [[False] * 2 + [r > 0] * 3 + [c > 0] * 3 for r in range(2) for c in range(3)]
    assert turns.tolist() == rows


def test_scores_depend_on_the_three_differences() -> None:
    """One vector everywhere: two pairs of tokens with equal differences have equal scores."""
    options = MRoPEOptions(images=((2, 3, 4, 5),))
    q, k = (x[:, :1, :1].expand(-1, -1, 70, -1) for x in vectors(70))
    at = options.places(torch.arange(70))
    turned = pairs(q, k, torch.arange(70), options=options)
    scores = (turned[0] @ turned[1].mT)[0, 0]
    seen: dict[Any, float] = {}
    for i in range(70):
        for j in range(70):
            apart = tuple((at[i] - at[j]).tolist())
            assert seen.setdefault(apart, scores[i, j].item()) == pytest.approx(scores[i, j].item())
    assert len(seen) < 2500 < 70 * 70


def test_forms_agree_where_images_are() -> None:
    q, k = vectors()
    for order in ("blocks", "interleaved"):
        options = MRoPEOptions(images=IMAGES, order=order)
        for ours, theirs in zip(
            pairs(q, k, torch.arange(N), options=options),
            naive(q, k, torch.arange(N), options=options),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs)


def qwen(sections: list[int], code: Any, config: Any, rotary: str) -> Any:
    given = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
    made = config(
        hidden_size=3 * D, num_attention_heads=3, num_key_value_heads=3, head_dim=D,
        rope_parameters=given,
    )  # fmt: skip
    return getattr(code, rotary)(made)


@pytest.mark.parametrize(
    ("module", "config", "rotary", "order", "sections"),
    [
        ("qwen2_vl", "Qwen2VLTextConfig", "Qwen2VLRotaryEmbedding", "blocks", (2, 3, 3)),
        ("qwen3_vl", "Qwen3VLTextConfig", "Qwen3VLTextRotaryEmbedding", "interleaved", (4, 2, 2)),
    ],
)
def test_as_in_hugging_face(
    module: str, config: str, rotary: str, order: Any, sections: Any
) -> None:
    """The places of a text with two images, and queries and keys turned by them."""
    code = pytest.importorskip(f"transformers.models.{module}.modeling_{module}")
    if not hasattr(code, rotary):
        pytest.skip(f"this version of Transformers has no {rotary}")
    theirs = qwen(list(sections), code, getattr(code, config), rotary)
    options = MRoPEOptions(order=order, sections=sections, images=IMAGES)
    places = options.places(torch.arange(N))
    if module == "qwen2_vl":
        kinds = torch.zeros(1, N, dtype=torch.int)
        for start, frames, rows, columns in IMAGES:
            kinds[:, start : start + frames * rows * columns] = 1
        merged = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace()))
        merged.config.vision_config.spatial_merge_size = 1
        merged.get_vision_position_ids = lambda *given, **more: (
            code.Qwen2VLModel.get_vision_position_ids(merged, *given, **more)
        )
        grids = torch.tensor([image[1:] for image in IMAGES])
        found, moved = code.Qwen2VLModel.get_rope_index(
            merged, torch.zeros(1, N, dtype=torch.long), kinds, grids
        )
        assert torch.equal(found[:, 0].mT, places)
        assert moved.item() == places.max().item() + 1 - N
    q, k = vectors()
    cos, sin = theirs(q, places.mT[:, None].expand(3, 2, N))
    expected = code.apply_rotary_pos_emb(q, k, cos, sin)
    ours = pairs(q, k, torch.arange(N), options=options)
    for mine, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_a_model_reads_a_text_with_images_token_by_token() -> None:
    torch.manual_seed(1)
    model = attnlab.TinyTransformer(
        19, dim=32, layers=2, heads=2, positions="mrope", position_options={"images": IMAGES}
    ).eval()
    tokens, state = torch.randint(19, (2, N)), None
    whole = model(tokens)
    for place in range(N):
        out, state = model.step(tokens[:, place : place + 1], state)
        torch.testing.assert_close(out, whole[:, place])
    plain = attnlab.TinyTransformer(19, dim=32, layers=2, heads=2, positions="rope").eval()
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain(tokens)[:, :3], whole[:, :3])
    assert not torch.allclose(plain(tokens)[:, 5:], whole[:, 5:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sections": (1, 2, 3)}, r"are 6 pairs, and a head of width 16 has 8"),
        ({"sections": (0, 3, 5), "order": "interleaved"}, "every third of width, which are fewer"),
        ({"sections": (1, 2)}, "should hold 3 values"),
        ({"images": ((3, 1, 2, 4), (9, 1, 2, 2))}, "begins at token 9, and the one before it ends"),
        ({"images": ((3, 0, 2, 4),)}, r"images\[0\]\[1\] should be at least 1"),
        ({"base": 1.0}, "base should be above 1"),
        ({"order": "mixed"}, "order"),
    ],
)
def test_refusals(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attnlab.build("mrope", dim=32, heads=2, **options)


def test_heads_of_an_odd_width_and_of_another_layer_are_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        attnlab.build("mrope", dim=6, heads=2)
    with pytest.raises(ValueError, match="heads=3 does not divide"):
        attnlab.build("mrope", dim=8, heads=3)
    q, k = vectors()
    with pytest.raises(ValueError, match="heads of width 8"):
        attnlab.build("mrope", dim=16, heads=2)(q, k, torch.arange(N))
    fixed = attnlab.build("mrope", dim=16, heads=2, sections=(2, 1, 1))
    with pytest.raises(ValueError, match="are 4 pairs, and a head of width 4 has 2"):
        fixed.of_width(4)
    assert attnlab.build("mrope", dim=16, heads=2).of_width(4).head_dim == 4
