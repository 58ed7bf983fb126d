"""Checks of lesson 90: the tokens of a large image, an image as words, a map against the ink."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, sizes
from attnlab.exercises.exercise import Exercise, but

# ---- how many words

check_image_tokens = NumberExercise(
    "Is it the number of vectors that a ViT with patches of 16 × 16 reads of 384 × 384 pixels?",
    right=24**2 + 1,
    unit="vectors",
    mistakes={
        24**2: "Those are the patches. The class token stands in front of them.",
        24: "That is one side of the grid. The patches fill 24 rows of 24.",
        25: "That is one side of the grid and the class token. The patches fill 24 rows of 24.",
        14**2 + 1: "That is for 224 × 224 pixels. Positions are resized, patches keep their size.",
        14**2: "That is for images of 224 × 224, and without the class token.",
        3 * 24**2 + 1: "Colours are no patches of their own: they are numbers inside each patch.",
        384**2 // 16: "A patch has 16 × 16 pixels, not 16.",
        384**2 // 16 + 1: "A patch has 16 × 16 pixels, not 16.",
    },
)  # fmt: skip


# ---- an image as words


def _patches(image: Tensor, p: int, *, order: str = "row, column, channel") -> Tensor:
    """(n, p²·channels), in reading order."""
    cut = image.unflatten(-1, (-1, p)).unflatten(-3, (-1, p))  # (c, rows, p, columns, p)
    axes = {
        "row, column, channel": (1, 3, 2, 4, 0),
        "channel, row, column": (1, 3, 0, 2, 4),
        "column, row, channel": (1, 3, 4, 2, 0),
        "down first": (3, 1, 2, 4, 0),
    }
    return cut.permute(axes[order]).flatten(2).flatten(0, 1)


def _as_words(
    image: Tensor, p: int, E: Tensor, class_token: Tensor, positions: Tensor, *,
    order: str = "row, column, channel", first: bool = True, placed: str = "all",
) -> Tensor:  # fmt: skip
    """(n + 1, dim); every keyword is a mistake."""
    vectors = _patches(image, p, order=order) @ E
    parts = [class_token[None], vectors] if first else [vectors, class_token[None]]
    if placed == "patches":
        return torch.cat([class_token[None], vectors + positions[1:]])
    words = torch.cat(parts)
    return words if placed == "none" else words + positions


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _images() -> Iterator[Arguments]:
    """Two images of their own sides and channels, whose patches are 2 × 2 and 3 × 3."""
    grids = sizes((3, 5, 7), (4, 2, 5))
    for (rows, columns, dim), (p, channels) in zip(grids, ((2, 3), (3, 2)), strict=True):
        yield {
            "image": _normal(rows, channels, rows * p, columns * p),
            "p": p,
            "E": _normal(columns, p * p * channels, dim),
            "class_token": _normal(dim, dim),
            "positions": _normal(dim + 1, rows * columns + 1, dim),
        }


check_as_words = Exercise(
    """Is it what a ViT's encoder reads? `as_words(image, p, E, class_token, positions)`.

    `image` (channels, height, width), patches of p × p pixels in reading order, the numbers of a
    patch in the order row, column, channel; `E` (p²·channels, dim), `class_token` (dim,),
    `positions` (n + 1, dim). It returns (n + 1, dim), the class token first.
    """,
    right=_as_words,
    cases=_images,
    axes="places dim",
    mistakes={
        but(order="channel, row, column"): (
            "Inside a patch the channels come first, as in a convolution's kernel. Here they are "
            "last: row, column, channel."
        ),
        but(order="column, row, channel"): "Inside a patch you go down first: go along its rows.",
        but(order="down first"): "The patches go down the image first: go along its rows.",
        but(first=False): "The class token stands last. It is the first, with the first position.",
        but(placed="none"): "No positions are added, so where a patch stands is not told.",
        but(placed="patches"): "The class token has a position, too: the first row of `positions`.",
        (lambda image, p, E, class_token, positions: torch.cat(
            [class_token[None], image.reshape(-1, E.shape[0]) @ E]) + positions): (
            "The image is cut into runs of pixels in the order in which they lie in memory. A "
            "patch is a square: bring the two axes inside of it together before you flatten."
        ),
    },
    praise="These vectors are all that the encoder reads of the image.",
)  # fmt: skip


# ---- a map against the ink


def _ink_overlap(
    weights: Tensor, ink: Tensor, share: float, *, own: bool = False, over: bool = True,
    count: bool = False, union: bool = True, row: bool = True,
) -> Tensor:  # fmt: skip
    """The Jaccard index of what is kept and the ink; every keyword is a mistake."""
    line = weights[0] if row else weights[:, 0]
    seen = line if own else line[1:] / line[1:].sum()
    value, order = seen.sort(descending=True)
    wanted = value.cumsum(0) - value < share if over else value.cumsum(0) <= share
    if count:
        wanted = torch.arange(len(value)) < round(share * len(value))
    kept = torch.zeros_like(wanted).scatter(0, order, wanted)
    kept = kept[1:] if own else kept
    either = kept | ink if union else ink
    return (kept & ink).sum().to(weights) / either.sum()


def _maps() -> Iterator[Arguments]:
    """What is asked of three lengths and shares; the class token attends much to itself."""
    for (n,), share in zip(sizes((12,), (16,), (9,)), (0.6, 0.75, 0.5), strict=True):
        scores = 1.3 * _normal(n + 12, n + 1, n + 1)  # seeds that tell all mistakes apart
        scores[0, 0] = 2.0
        yield {"weights": scores.softmax(-1), "ink": _normal(n + 13, n) < 0, "share": share}


check_ink_overlap = Exercise(
    """Is what the class token attends to the ink? `ink_overlap(weights, ink, share)`.

    `weights` (n + 1, n + 1) are of one head, the class token first; `ink` (n,) is True for patches
    with ink. Keep the fewest patches that hold at least `share` of what the class token gives to
    patches, and return the Jaccard index of the kept ones and those with ink: patches that are
    both, over patches that are either.
    """,
    right=_ink_overlap,
    cases=_maps,
    axes="",
    mistakes={
        but(own=True): (
            "The class token's weight on itself counts in the share. Leave it out, and divide the "
            "weights of the patches by their sum."
        ),
        but(over=False): (
            "The patch with which the share is reached is missing: what you keep holds less."
        ),
        but(count=True): "That is a share of the patches. It is a share of their weight.",
        but(union=False): (
            "That is the share of the ink that is found: a map that keeps every patch would have "
            "1. Divide by the patches that are either."
        ),
        but(row=False): (
            "That is the column of the class token: what each patch gives to it. Its row is what "
            "it attends to."
        ),
    },
    praise="Beside it belongs the index with the ink of other images: what a blind map would have.",
)  # fmt: skip
