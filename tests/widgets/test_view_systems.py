"""`attnlab.view` of systems that join images and words: in each the image is drawn, and tokens are
its patches where they stand for them."""

from typing import Any

import numpy as np
import pytest
import torch
from attnlab_widgets.attention_view import AttentionView

import attnlab
from attnlab.lens.sources.patches import Patch, at_markers, side_by_side
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.donut import Donut, DonutOptions
from attnlab.systems.frozen import WithImages
from attnlab.systems.metalm import MetaLM
from attnlab.systems.palm_e import PaLME, PictureEncoder
from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.systems.vit import ViT, ViTOptions
from attnlab.systems.vlmo import VLMo
from attnlab.systems.vlmo_layers import VLMoOptions

MARKER, VOCAB = 1, 20
PICTURE = torch.linspace(0, 1, 3 * 8 * 12).view(3, 8, 12)
SIZES: dict[str, Any] = {"heads": 2, "layers": 1}


def grids(view: AttentionView) -> dict[tuple[int, int], tuple[Any, Any]]:
    """(queries, keys) of each layer → the grids of its queries and keys."""
    of_set = view._recording["grids"]
    return {
        (layer["n"], layer["m"]): (of_set[layer["q"]["set"]], of_set[layer["k"]["set"]])
        for layer in view._recording["layers"]
    }


def language_model(dim: int = 8) -> TinyTransformer:
    return TinyTransformer(VOCAB, dim=dim, max_len=30, **SIZES)


def test_a_vit_reads_an_image() -> None:
    sizes = ViTOptions(image=8, patch=4, dim=8, layers=1, heads=2, hidden=8, classes=3)
    view = attnlab.view(ViT(sizes), PICTURE[None])
    grid = {"rows": 2, "columns": 3, "first": 1}
    assert grids(view) == {(7, 7): (grid, grid)}
    assert (view._recording["image"]["width"], view._recording["image"]["height"]) == (12, 8)


def test_queries_of_a_qformer_read_the_patches() -> None:
    sizes = QFormerOptions(dim=8, layers=1, heads=2, hidden=8, queries=3, image_dim=5, vocab=VOCAB)
    given = torch.randn(1, 6, 5), torch.tensor([[3, 4, 5, 6]])
    view = attnlab.view(QFormer(sizes), given, image=PICTURE, grid=(2, 3))
    found = grids(view)
    assert found[3, 6] == (None, {"rows": 2, "columns": 3, "first": 0})


def test_donut_writes_while_it_looks_at_the_page() -> None:
    model = Donut(DonutOptions(vocab=VOCAB, length=9, patches=6, numbers=4, dim=8, **SIZES))
    given = {"tokens": torch.tensor([[2, 3, 4, 5]]), "source": torch.rand(1, 6, 4)}
    found = grids(attnlab.view(model, given, image=PICTURE, grid=(2, 3)))
    grid = {"rows": 2, "columns": 3, "first": 0}
    assert found == {(6, 6): (grid, grid), (4, 4): (None, None), (4, 6): (None, grid)}


def frozen(vectors: int) -> WithImages:
    encoder = TinyTransformer(features=4, kind="classifier", classes=3, dim=8, max_len=6, **SIZES)
    return WithImages(
        encoder, language_model(), marker=MARKER, patches=6, vectors=vectors
    )  # fmt: skip


def test_an_image_of_frozen_is_one_place_of_two_vectors() -> None:
    given = {"tokens": torch.tensor([[0, 1, 1, 5, 6]]), "source": torch.rand(1, 6, 4)}
    view = attnlab.view(frozen(2), given, image=PICTURE)
    grid = {"rows": 1, "columns": 1, "first": 1, "text": True, "tokens": [[1, 2]]}
    assert grids(view) == {(6, 6): (None, None), (5, 5): (grid, grid)}
    names = [each[-1] for each in view._recording["tokens"][-1]]
    assert names == ["0", *2 * ["patch in row 0, column 0"], "5", "6"]


def test_images_between_words_are_drawn_side_by_side() -> None:
    tokens = torch.tensor([[0, 1, 5, 1, 6]])
    given = {"tokens": tokens, "source": torch.rand(1, 12, 4)}
    view = attnlab.view(frozen(1), given, image=[PICTURE, 1 - PICTURE])
    grid = {"rows": 1, "columns": 2, "first": 1, "text": True, "tokens": [[1], [3]]}
    assert grids(view)[5, 5] == (grid, grid)
    assert (view._recording["image"]["width"], view._recording["image"]["height"]) == (24, 8)


def test_patches_of_palm_e_stand_in_its_text() -> None:
    sizes = ViTOptions(image=8, patch=4, dim=8, layers=1, heads=2, hidden=8)
    model = PaLME(PictureEncoder(ViT(sizes), 8), language_model(), marker=MARKER)
    tokens = torch.tensor([[7, 8, 9, 7, 8, 9, 1, 1, 1, 1, 5, 6]])
    given = {"tokens": tokens, "source": torch.rand(1, 4, 48)}
    view = attnlab.view(model, given, image=PICTURE[:, :, :8], grid=(2, 2))
    among, own = ({"rows": 2, "columns": 2, "first": first} for first in (6, 1))
    among["text"] = True  # its six words stand before the patches; [CLS] is no word
    assert grids(view) == {(5, 5): (own, own), (12, 12): (among, among)}


def test_patches_of_vlmo_stand_behind_its_text() -> None:
    sizes = VLMoOptions(
        dim=8, layers=2, heads=2, hidden=8, pairs=1, vocab=VOCAB, max_len=9, features=4, patches=6
    )  # fmt: skip
    given = {"tokens": torch.tensor([[3, 4, 5, 6, 7]]), "source": torch.rand(1, 6, 4)}
    view = attnlab.view(VLMo(sizes), given, image=PICTURE, grid=(2, 3))
    (layer,) = {(each["n"], each["m"]) for each in view._recording["layers"]}
    grid = {"rows": 2, "columns": 3, "first": layer[0] - 6, "text": True}
    assert grids(view) == {layer: (grid, grid)}
    assert [each[-1] for each in view._recording["tokens"][0]][:5] == ["3", "4", "5", "6", "7"]


def test_metalm_reads_texts_and_refuses_an_image() -> None:
    encoder = TinyTransformer(VOCAB, kind="token_classifier", classes=2, dim=8, max_len=9, **SIZES)
    model, given = MetaLM(encoder, language_model()), {"tokens": torch.tensor([[2, 3, 4, 5, 6]])}
    given["spans"] = torch.tensor([[0, 1, 1, 0, 0]])
    assert {(n, m) for n, m in lengths(attnlab.view(model, given))} == {(2, 2), (5, 5)}
    with pytest.raises(ValueError, match="no layer reads the image"):
        attnlab.view(model, given, image=PICTURE, grid=(1, 9))


def lengths(view: AttentionView) -> list[tuple[int, int]]:
    return [(layer["n"], layer["m"]) for layer in view._recording["layers"]]


def test_the_still_lightens_a_patch_by_the_sum_of_its_vectors() -> None:
    row = [0.1, 0.35, 0.25, 0.3, 0]  # one image 0.6, the other 0.3
    assert shown_of(two_images(row, query=4)) == pytest.approx((200, lit(0.5)), abs=1)


def two_images(row: list[float], query: int) -> AttentionView:
    """What a word (4) and the first of two vectors of an image (1) attend to."""
    weights = np.full((1, 1, 5, 5), 0.1, np.float32)
    weights[0, 0, query] = row
    tokens = ["a", Patch(0, 0), Patch(0, 0), Patch(0, 1), "b"]
    view = AttentionView(weights, tokens, image=np.full((10, 20), 200, np.uint8))
    view.query = query
    return view


def shown_of(view: AttentionView) -> tuple[float, float]:
    """How bright each of the two patches is in the still."""
    maps = [part for kind, part in view.still().parts if kind == "map"]
    (image,) = [part for part in maps if np.shape(part["levels"]) == (10, 20)]
    shown = np.array([int(colour[1:3], 16) for colour in image["palette"]])[image["levels"]]
    assert np.ptp(shown[:, :10]) == np.ptp(shown[:, 10:]) == 0
    return float(shown[0, 0]), float(shown[0, -1])


def lit(share: float) -> float:
    """The brightness of 200 at that share of the largest weight."""
    return 200 * (1 - 0.68 * (1 - share**0.5))


def test_the_still_is_as_bright_as_the_largest_weight_of_patches_and_words() -> None:
    row = [0.8, 0.05, 0.05, 0.1, 0]
    assert shown_of(two_images(row, query=4)) == pytest.approx((lit(1 / 8), lit(1 / 8)), abs=1)


def test_weights_of_both_signs_are_added_up_before_their_size() -> None:
    row = [0.1, 0.5, -0.3, -0.4, 0]  # the vectors of one image 0.2 together
    assert shown_of(two_images(row, query=4)) == pytest.approx((lit(0.5), 200), abs=1)


def test_the_still_says_what_the_vectors_of_a_patch_get_and_give_together() -> None:
    """Of a patch that is a query the mean over its vectors."""
    view = two_images([0.2, 0.25, 0.25, 0.3, 0], query=4)
    texts = [part["content"] for kind, part in view.still().parts if kind == "text"]
    assert "b attends to 0, 0 0.50, 0, 1 0.30, a 0.20" in texts
    patch = two_images([0.9, 0.0, 0.1, 0.0, 0.0], query=1)  # and the second vector 0.1 of each
    texts = [part["content"] for kind, part in patch.still().parts if kind == "text"]
    assert "0, 0 attends to a 0.50, 0, 0 0.15, 0, 1 0.05" in texts
    assert shown_of(patch) == pytest.approx((lit(0.3), lit(0.1)), abs=2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: at_markers([*"abc"], [True, True, True], (1, 2), 1), "3 markers.*1 images of 1 ×"),
        (lambda: at_markers([*"ab"], [False, False], (1, 1), 1), "has 0 markers"),
        (lambda: side_by_side([PICTURE, PICTURE[:, :4]]), "one size, got 8 × 12, 4 × 12"),
        (lambda: side_by_side([]), "got no image"),
        (
            lambda: AttentionView(
                np.ones((1, 1, 2, 2)), ["a", Patch(2, 0)], image=PICTURE, grid=(2, 3)
            ),
            "token 1 is the patch in row 2 and column 0, and the image has 2 × 3 patches",
        ),
        (
            lambda: attnlab.view(language_model(), torch.tensor([3]), grid=(1, 2)),
            "give the `image`",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
