"""How does a score depend on where query and key stand?

    PositionExplorer()
    PositionExplorer({"rope": position_scores(model, 48)})    # of trained models

The score against the distance for several position schemes, the map of all pairs of positions, and
a query and a key of RoPE to turn by hand: two arrows for each pair of coordinates. The page
computes all of it without a kernel, so a saved file stays interactive.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray

from attnlab.core.suggest import check_choice
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.mechanisms.positions import alibi
from attnlab.mechanisms.positions.rope import RoPEOptions
from attnlab.mechanisms.positions.sinusoidal import table
from attnlab_widgets.base import STATIC, BaseWidget, as_trait_error, within
from attnlab_widgets.position_explorer import picture as position_picture

MOST, LEAST = 128, 2
MOST_NUMBERS = 2**18  # of all maps together: a megabyte
MOST_SCHEMES = 6
Scores = Mapping[str, Any]
# A scheme has one colour and dash in every picture; other names take the places that are left.
PLACES = ("none", "alibi", "rope", "t5_bias", "learned", "sinusoidal")


class PositionExplorer(BaseWidget):
    """Scores by position of several schemes, and RoPE's rotation of one query and one key.

    ``scores``    names with (h, n, n) or (n, n): the score of each query (rows) and key, less the
                  score at distance 0, as ``attnlab.lens.positions.position_scores`` gives it; NaN
                  where the query may not attend. Without it, ``example_scores``.
    ``shown``     whose curves are drawn; all unless given
    ``scheme``    whose map is drawn, and of which every head has a curve; the first unless given
    ``head_dim``  width of the head that is turned by hand, two for each pair of arrows
    ``base``      of RoPE's frequencies, base^(−2t / head_dim)

    What is chosen can be read and set from Python: ``shown``, ``scheme``, ``head``, ``query`` and
    ``key`` (positions, 0 … n − 1), ``phases`` (the angle of query and key in each pair before
    turning, two numbers for each pair), ``base``.
    """

    _esm = STATIC / "position_explorer.js"

    shown: Any = traitlets.List(traitlets.Unicode()).tag(sync=True)
    scheme = traitlets.Unicode().tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    key = traitlets.Int(0).tag(sync=True)
    phases: Any = traitlets.List(traitlets.Float()).tag(sync=True)
    base = traitlets.Float(10000.0).tag(sync=True)
    n = traitlets.Int(read_only=True).tag(sync=True)
    head_dim = traitlets.Int(read_only=True).tag(sync=True)
    _schemes: Any = traitlets.List().tag(sync=True)
    _data = traitlets.Bytes(b"").tag(sync=True)

    def __init__(
        self,
        scores: Scores | None = None,
        *,
        shown: Sequence[str] | None = None,
        scheme: str | None = None,
        head_dim: int = 8,
        base: float = 10000.0,
        theme: str = "auto",
    ) -> None:
        maps = _maps(example_scores() if scores is None else scores)
        names = list(maps)
        n = next(iter(maps.values())).shape[-1]
        self.set_trait("n", n)
        self.set_trait("head_dim", _width(head_dim))
        self._maps = maps
        starts = np.cumsum([0, *(one.size for one in maps.values())])
        super().__init__(
            _schemes=[
                {"name": name, "heads": len(one), "at": int(at), "look": look}
                for (name, one), at, look in zip(maps.items(), starts, _looks(names), strict=False)
            ],
            _data=b"".join(one.astype("<f4").tobytes() for one in maps.values()),
            shown=names if shown is None else list(shown),
            scheme=names[0] if scheme is None else scheme,
            query=min(12, n - 1),
            key=min(8, n - 1),
            phases=[0.0] * head_dim,
            base=base,
            theme=theme,
        )

    def curve(self, scheme: str, head: int = 0) -> NDArray[np.float64]:
        """(n,): the mean score of all pairs whose query stands 0, 1, … positions after the key."""
        check_choice("scheme", scheme, tuple(self._maps))
        within("head", head, 0, len(self._maps[scheme]) - 1)
        one = self._maps[scheme][head]
        return np.array([np.diagonal(one, -t).mean() for t in range(self.n)])

    def head_of(self, scheme: str) -> int:
        """The chosen head; of a scheme with fewer heads its last."""
        return min(self.head, len(self._maps[scheme]) - 1)

    @property
    def score(self) -> float:
        """q · k / √d of the query and the key that are turned by hand."""
        query, key = self.turned().T
        return float(np.cos(key - query).sum() / math.sqrt(self.head_dim))

    @property
    def theta(self) -> NDArray[np.float64]:
        """Radians per position of each pair."""
        found = RoPEOptions(base=self.base).frequencies(self.head_dim, torch.device("cpu"))
        return np.asarray(found.numpy(), np.float64)

    def turned(self) -> NDArray[np.float64]:
        """(pairs, 2): the directions of query and key in each pair, in radians."""
        at = np.array([self.query, self.key])
        return np.array(self.phases).reshape(-1, 2) + self.theta[:, None] * at

    # What may be set

    @traitlets.validate("shown")
    def _shown_are_known(self, proposal: Any) -> list[str]:
        for name in proposal["value"]:
            self._known(name)
        return [name for name in self._maps if name in proposal["value"]]

    @traitlets.validate("scheme")
    def _scheme_is_known(self, proposal: Any) -> str:
        return self._known(proposal["value"])

    def _known(self, name: str) -> str:
        as_trait_error(check_choice, "scheme", name, tuple(self._maps))
        return name

    @traitlets.observe("scheme")
    def _head_stays_inside(self, _change: Any) -> None:
        self.head = min(self.head, len(self._maps[self.scheme]) - 1)

    @traitlets.validate("head")
    def _head_exists(self, proposal: Any) -> int:
        heads = len(self._maps[self.scheme]) if self.scheme else 1
        return within("head", proposal["value"], 0, heads - 1)

    @traitlets.validate("query", "key")
    def _position_exists(self, proposal: Any) -> int:
        return within(proposal["trait"].name, proposal["value"], 0, self.n - 1)

    @traitlets.validate("phases")
    def _phases_are_angles(self, proposal: Any) -> list[float]:
        found = proposal["value"]
        if len(found) != self.head_dim or not np.isfinite(found).all():
            raise traitlets.TraitError(
                f"`phases` should hold two finite angles for each of the {self.head_dim // 2} "
                f"pairs, {self.head_dim} in all, got {len(found)}"
            )
        return list(found)

    @traitlets.validate("base")
    def _base_is_above_one(self, proposal: Any) -> float:
        if not 1 < proposal["value"] < math.inf:
            raise traitlets.TraitError(f"`base` should be above 1, got {proposal['value']}")
        return float(proposal["value"])

    # Without widgets

    @property
    def description(self) -> str:
        """What the curves say, in a sentence for each scheme that is shown."""
        sentences = []
        for name in self.shown:
            curve = self.curve(name, self.head_of(name))
            best = int(curve.argmax())
            flat = bool(np.ptp(curve) < 1e-6)
            says = (
                "the same score at every distance"
                if flat
                else f"highest at distance {best}, {curve[-1]:+.2f} at distance {self.n - 1}"
            )
            sentences.append(f"{visible(name)}: {says}.")
        return " ".join(sentences)

    def still(self) -> Drawing:
        """The curves, the map of the chosen scheme, and the arrows of query and key."""
        return position_picture.drawn(self)

    def __repr__(self) -> str:
        return f"PositionExplorer: {self.description}"


def example_scores(
    n: int = 48, *, heads: int = 4, head_dim: int = 32
) -> dict[str, NDArray[np.float64]]:
    """(heads, n, n) of the schemes that have a shape before any training, keys of the past only.

    The query of RoPE equals its key, turned so that head h prefers the distance 0, 2, 6, 14, …;
    the sinusoids are compared as they are, each vector with each.
    """
    i = torch.arange(n)
    distance = (i[:, None] - i).double()
    theta = RoPEOptions().frequencies(head_dim, torch.device("cpu"))
    preferred = torch.tensor([2.0 ** (h + 1) - 2 for h in range(heads)]).double()
    angles = (distance - preferred[:, None, None])[..., None] * theta
    rope = angles.cos().sum(-1) / math.sqrt(head_dim)
    vectors = table(i, heads * head_dim)
    sinusoidal = (vectors @ vectors.mT / math.sqrt(heads * head_dim)).expand(heads, n, n)
    found = {
        "none": torch.zeros(heads, n, n),
        "alibi": alibi.naive(i, i, alibi.slopes(heads)),
        "rope": rope,
        "sinusoidal": sinusoidal,
    }
    later = distance < 0
    return {
        name: (one - one.diagonal(0, -2, -1)[..., None])
        .double()
        .masked_fill(later, math.nan)
        .numpy()
        for name, one in found.items()
    }


# ---- what is given


def _looks(names: Sequence[str]) -> list[int]:
    """The place of each scheme's colour and dash."""
    left = iter([at for at, name in enumerate(PLACES) if name not in names])
    return [PLACES.index(name) if name in PLACES else next(left) for name in names]


def _maps(scores: Scores) -> dict[str, NDArray[np.float64]]:
    if not isinstance(scores, Mapping) or not scores:
        raise TypeError('`scores` should name at least one scheme: {"rope": scores (h, n, n)}')
    if len(scores) > MOST_SCHEMES:
        raise ValueError(
            f"at most {MOST_SCHEMES} schemes can be told apart by colour and dash, got "
            f"{len(scores)}; leave some out"
        )
    found = {str(name): _map(name, one) for name, one in scores.items()}
    sides = {name: one.shape[-1] for name, one in found.items()}
    if len(set(sides.values())) > 1:
        raise ValueError(f"all schemes need the same number of positions n, got {sides}")
    numbers = sum(one.size for one in found.values())
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"the maps hold {numbers:,} numbers, more than the {MOST_NUMBERS:,} that the page "
            "keeps; give fewer positions, schemes or heads"
        )
    return found


def _map(name: Any, scores: Any) -> NDArray[np.float64]:
    """(h, n, n); NaN where there is no score."""
    if isinstance(scores, torch.Tensor):
        scores = scores.detach().cpu().double().numpy()
    array = np.asarray(scores, np.float64)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[1] != array.shape[2] or not len(array):
        raise ValueError(f"{name!r} should be (h, n, n) or (n, n), got {np.shape(scores)}")
    if not LEAST <= array.shape[-1] <= MOST:
        raise ValueError(
            f"between {LEAST} and {MOST} positions can be drawn, {name!r} has {array.shape[-1]}; "
            "cut them, as scores[:, :64, :64]"
        )
    past = np.tril(np.ones(array.shape[1:], bool))
    if not np.isfinite(array[:, past]).all():
        raise ValueError(
            f"{name!r} needs a finite score for every key of the past and the query's own; only "
            "later keys may be NaN"
        )
    return array


def _width(head_dim: Any) -> int:
    if isinstance(head_dim, bool) or not isinstance(head_dim, int) or head_dim not in (2, 4, 6, 8):
        raise ValueError(f"head_dim should be 2, 4, 6 or 8 (one to four pairs), got {head_dim!r}")
    return head_dim
