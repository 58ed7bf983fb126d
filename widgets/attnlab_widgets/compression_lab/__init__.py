"""What is lost when a trained model is made smaller?

    CompressionLab()                                       # the shipped model of digits
    CompressionLab("documentation")                        # the shipped language model
    CompressionLab(model, inputs, labels)                  # a classifier, and answers (b,)
    CompressionLab(model, tokens, task=task)               # a language model, asked for the next

How many weights are kept and how many bits each has, or which smaller student takes the place of
the model: at once the weights with the cut, a matrix before and after, the attention maps before
and after with their difference, what is right with its spread, and the bytes. The page prunes,
rounds and attends itself; what is right on all test images was computed before, so a saved file
stays alive.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor, nn

from attnlab import pretrained
from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.smaller import (
    CUTS,
    Settings,
    compressed,
    cuts_of,
    importance_order,
    maps_of,
    size_of,
)
from attnlab.lens.watch import watch
from attnlab_widgets.base import STATIC, BaseWidget, Checked, Choice, as_trait_error, check_range
from attnlab_widgets.compression_lab import grids, words
from attnlab_widgets.compression_lab.grids import PERS, key, place
from attnlab_widgets.compression_lab.networks import Packed, check_model, levels_of, told_of
from attnlab_widgets.compression_lab.picture import picture

MODEL = "the model"
EXAMPLES = 6
MOST_SHOWN = 64  # tokens of an example whose maps are shown
MOST_ROWS = 2000
TEXTS = (
    "The name of the file is the name of the module.",
    "If the key is not in the dictionary, a KeyError is raised.",
    "for item in items: print(item, end=' ')",
    "Return a new list with the items of the list.",
)
PASSAGES, PASSAGE = 32, 65


class CompressionLab(BaseWidget):
    """A trained model, and what is left of it.

    ``model``     "digits" (with its students), "documentation", or a ``TinyTransformer`` of kind
                  "classifier", "token_classifier" or "language_model"
    ``inputs``    of a model of your own: tokens (b, n), or features (b, n, f); at most 2,000 rows
    ``labels``    the right answers, (b,) or, of a token classifier, (b, n); a language model is
                  asked for the next token of ``inputs`` and has none
    ``task``      what names tokens by ``tokens(ids)``; or give ``names``, one for each token of the
                  vocabulary
    ``students``  name → a smaller model that answers the same; its maps and weights are shown in
                  the place of the model's

    These can be read and set:

    ``student``   whose numbers are shown: "the model", or the name of a student
    ``kept``      the share that is left: 1.0, 0.9, …, 0.1, 0.05
    ``bits``      of each number that is left: 32, 8, 6, 4, 3 or 2
    ``cut``       what goes: the smallest of "all weights" together or of "each matrix", "hidden
                  units" of the smallest norms, or "heads" by their importance for the same
                  answers that are scored
    ``per``       a scale for each matrix ("tensor") or each of its rows ("channel")
    ``matrix``    the weight matrix that is shown, by its name
    ``layer``, ``head``, ``example``  whose attention map is shown, and for which of the inputs
    """

    _esm = STATIC / "compression_lab.js"

    student: Any = Checked(MODEL).tag(sync=True)
    kept: Any = Checked(1.0).tag(sync=True)
    bits: Any = Checked(32).tag(sync=True)
    cut: Any = Choice(CUTS, CUTS[0]).tag(sync=True)
    per: Any = Choice(PERS, PERS[0]).tag(sync=True)
    matrix: Any = Checked("").tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    example = traitlets.Int(0).tag(sync=True)
    _lab: Any = traitlets.Dict().tag(sync=True)
    _numbers = traitlets.Bytes(b"").tag(sync=True)
    _scores: Any = traitlets.Dict().tag(sync=True)
    _maps = traitlets.Bytes(b"").tag(sync=True)
    _mapped = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        model: Any = "digits",
        inputs: Any = None,
        labels: Any = None,
        *,
        task: Any = None,
        names: Sequence[Any] | None = None,
        students: Mapping[str, nn.Module] | None = None,
        student: str = MODEL,
        kept: float = 1.0,
        bits: int = 32,
        cut: str = "all weights",
        per: str = "tensor",
        theme: str = "auto",
    ) -> None:
        given = _given(model, inputs, labels, task, names, students)
        self._ready = False
        self._models: dict[str, Any] = given["models"]
        self._orders: dict[str, Any] = given["orders"]
        self._inputs, self._labels = given["inputs"], given["labels"]
        self._shown: list[Tensor] = given["shown"]
        packed, networks = Packed(), []
        for name, each in self._models.items():
            found = told_of(
                name, each, packed, self._longest(), self._orders[name],
                heads=[len(maps) for maps in _maps(each, self._shown[0])],
                seeds=given["seeds"].get(name, ()),
            )  # fmt: skip
            networks.append(found)
        examples = [
            {"name": name, "inputs": x[0].flatten().tolist(), "tokens": tokens, "size": x.shape[1]}
            for name, x, tokens in zip(given["called"], self._shown, given["tokens"], strict=True)
        ]
        lab = {
            "shares": grids.SHARES, "bits": grids.BITS, "networks": networks, "examples": examples,
            "rows": given["rows"], "over": given["over"], "answers": given["answers"],
            "image": given["image"], "features": self._shown[0].dim() == 3,
        }  # fmt: skip
        super().__init__(
            _lab=lab, _numbers=packed.all(), _scores=given["scores"], theme=theme,
            matrix=_first(networks[0]["matrices"]),
        )  # fmt: skip
        self._ready = True
        self.student, self.kept, self.bits = student, kept, bits
        self.cut, self.per = cut, per
        self._follow()

    # What follows from the state

    @property
    def settings(self) -> Settings:
        """How the model is made smaller."""
        return Settings(cut=self.cut, kept=self.kept, bits=self.bits, per=self.per)

    @property
    def network(self) -> Any:
        """The model or student that is shown, before it is compressed."""
        return self._models[self.student]

    @property
    def order(self) -> list[tuple[int, int]]:
        """Its heads as (layer, head), the least important first."""
        return [(layer, head) for layer, head in self._orders[self.student]]

    def compressed(self) -> nn.Module:
        """The compressed model, with zeros where it was cut."""
        return compressed(self.network, self.settings, self.order)

    def bytes(self) -> int:
        """What its numbers take when they are stored."""
        return size_of(self.network, self.settings, self.order)

    def whole_bytes(self) -> int:
        """What the numbers of the whole model take: four bytes each."""
        return 4 * sum(p.numel() for p in self._models[MODEL].parameters())

    def score(self) -> tuple[float, float, float] | None:
        """The share of right answers, and the ends of its interval of 95 %; None where it is not
        known."""
        grid = self._scores.get(key(self.student, self.cut, self.per))
        return None if grid is None else grids.score_at(grid, self._at, self._lab["rows"])

    def whole_score(self) -> float:
        """The share of right answers of the whole model."""
        found = next(grid for name, grid in self._scores.items() if name.startswith(f"{MODEL}|"))
        return grids.score_at(found, place(1.0, 32), self._lab["rows"])[0]

    def maps(self) -> tuple[list[Tensor], list[Tensor]]:
        """The attention weights of each layer for the example, (h, n, n), before and after; none
        for a model without attention weights."""
        x = self._shown[self.example]
        return _maps(self.network, x), _maps(self.compressed(), x)

    def description(self) -> str:
        """Settings, bytes and what is right."""
        right = words.right(self.score(), self.whole_score(), self._lab)
        sizes = self.bytes(), self.whole_bytes()
        return words.sentence(self.student, self.settings, sizes, right)

    def still(self) -> Drawing:
        """The weights with the cut, a matrix and an attention map before and after."""
        return picture(self)

    def __repr__(self) -> str:
        return f"CompressionLab: {self.description()}"

    @property
    def _at(self) -> int:
        return place(self.kept, self.bits)

    @property
    def _told(self) -> dict[str, Any]:
        found = [each for each in self._lab["networks"] if each["name"] == self.student]
        return dict(found[0])

    def _longest(self) -> Tensor:
        return max(self._shown, key=lambda x: x.shape[1])

    @property
    def _heads(self) -> list[int]:
        """How many heads each layer with attention weights has."""
        return list(self._told["heads"])

    # What may be set

    @traitlets.validate("student")
    def _a_student(self, proposal: Any) -> str:
        return as_trait_error(_one_of, "student", proposal["value"], [*self._models])

    @traitlets.validate("matrix")
    def _a_matrix(self, proposal: Any) -> str:
        return as_trait_error(_one_of, "matrix", proposal["value"], self._told["matrices"])

    @traitlets.validate("kept", "bits")
    def _of_the_grid(self, proposal: Any) -> Any:
        name = proposal["trait"].name
        values = grids.SHARES if name == "kept" else grids.BITS
        return as_trait_error(_on_the_grid, name, proposal["value"], values)

    @traitlets.validate("cut")
    def _can_be_cut(self, proposal: Any) -> str:
        if self._ready and proposal["value"] not in self._told["cuts"]:
            raise traitlets.TraitError(
                f"{self.student} has no {proposal['value']} that could be cut; `cut` should be one "
                f"of {', '.join(self._told['cuts'])}"
            )
        return str(proposal["value"])

    @traitlets.validate("layer", "head", "example")
    def _in_range(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        if not self._ready:
            return int(value)
        counts = {"example": len(self._shown)}
        if name != "example":
            heads = self._heads or [1]
            counts |= {"layer": len(heads), "head": heads[min(self.layer, len(heads) - 1)]}
        return as_trait_error(check_range, name, value, counts[name])

    @traitlets.observe("student", "layer")
    def _another(self, change: Any) -> None:
        """What the other network or layer does not have becomes its nearest."""
        if not self._ready:
            return
        told = self._told
        if self.matrix not in told["matrices"]:
            self.matrix = told["matrices"][0]
        if self.cut not in told["cuts"]:
            self.cut = told["cuts"][0]
        heads = self._heads or [1]
        self.layer = min(self.layer, len(heads) - 1)
        self.head = min(self.head, heads[self.layer] - 1)

    @traitlets.observe("student", "kept", "bits", "cut", "per", "example")
    def _changed(self, _: Any) -> None:
        if self._ready:
            self._follow()

    def _follow(self) -> None:
        """What the page does not compute: how many answers are right, where no grid holds it, and
        the maps of a model that the page cannot run."""
        name = key(self.student, self.cut, self.per)
        if name not in self._scores and self._inputs is not None:
            found = grids.grid_of(
                self.network, self.cut, self.per, self.order, self._inputs, self._labels
            )
            self._scores = {**self._scores, name: found}
        if self._told["run"] is None:
            causal = self.network.kind == "language_model"
            both = [levels_of(each, causal=causal).tobytes() for each in self.maps()]
            self._maps = b"".join(both)
            asked = (self.student, self.cut, self.kept, self.bits, self.per, self.example)
            self._mapped = "|".join(map(str, asked))


def _first(matrices: Sequence[str]) -> str:
    """The queries of the first layer, where there are some."""
    return next((name for name in matrices if name.endswith("query.weight")), matrices[0])


def _one_of(name: str, value: Any, names: Sequence[str]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"`{name}` should be one of {', '.join(names)}, got {value!r}")
    check_choice(name, value, names)
    return value


def _on_the_grid(name: str, value: Any, values: Sequence[float]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in values:
        shown = ", ".join(f"{each:g}" for each in values)
        raise ValueError(f"`{name}` should be one of {shown}")
    return values[values.index(value)]


def _maps(model: nn.Module, x: Tensor) -> list[Tensor]:
    try:
        return maps_of(model, x, watch)
    except ValueError:
        return []


# What is given


def _given(model: Any, inputs: Any, labels: Any, task: Any, names: Any, students: Any) -> Any:
    if isinstance(model, str):
        check_choice("model", model, ("digits", "documentation"))
        for name, value in {
            "inputs": inputs, "labels": labels, "task": task, "names": names, "students": students,
        }.items():  # fmt: skip
            if value is not None:
                raise ValueError(f"`{name}` is for a model of your own; leave it out of {model!r}")
        return _digits() if model == "digits" else _documentation()
    return _own(model, inputs, labels, task, names, students)


def _digits() -> dict[str, Any]:
    from attnlab.experiments import students

    known = grids.stored()["digits"]
    batch = students.unseen()
    models: dict[str, Any] = {MODEL: pretrained.load("digits")[0]}
    models |= {name: students.student(name) for name in students.GRID.arms}
    chosen = [int((batch.targets == digit).nonzero()[0]) for digit in (4, 9, 7, 3, 8, 0)]
    return {
        "models": models,
        "orders": known["orders"],
        "scores": known["grids"],
        "seeds": students.right_by_seed(),
        "inputs": batch.inputs,
        "labels": batch.targets,
        "shown": [batch.inputs[at : at + 1] for at in chosen],
        "called": [f"a {int(batch.targets[at])}" for at in chosen],
        "tokens": [
            [f"pixel {i // 8}, {i % 8}" for i in range(batch.inputs.shape[1])] for _ in chosen
        ],
        "rows": len(batch.inputs),
        "over": f"{len(batch.inputs)} images",
        "answers": f"{len(batch.inputs)} test images",
        "image": 8,
    }


def _documentation() -> dict[str, Any]:
    model: Any
    task: Any
    model, task = pretrained.load("documentation")
    known = grids.stored()["documentation"]
    shown = [task.encode(text)[None] for text in TEXTS]
    return {
        "models": {MODEL: model},
        "orders": known["orders"],
        "scores": known["grids"],
        "seeds": {},
        "inputs": None,
        "labels": None,
        "shown": shown,
        "called": [visible(text, 30) for text in TEXTS],
        "tokens": [[visible(token, 16) for token in task.tokens(ids[0])] for ids in shown],
        "rows": known["rows"],
        "over": f"{known['rows']} passages",
        "answers": f"the next tokens in {known['rows']} passages",
        "image": 0,
    }


def _own(
    model: Any, inputs: Any, labels: Any, task: Any, names: Any, students: Any
) -> dict[str, Any]:
    model = check_model(model)
    x, y = _answers(model, inputs, labels)
    models: dict[str, Any] = {MODEL: model}
    for name, student in (students or {}).items():
        if not isinstance(name, str) or name in models or not name.isprintable() or not name:
            raise ValueError(f"a student should have a printable name of its own, got {name!r}")
        models[name] = check_model(student, f"students[{name!r}]")
        if student.kind != model.kind or student(x[:1]).shape != model(x[:1]).shape:
            raise ValueError(f"the student {name!r} should answer as the model does, and does not")
    whole = y.dim() == 1
    shown = [x[at : at + 1, :MOST_SHOWN] for at in range(min(EXAMPLES, len(x)))]
    noun = "rows of input"
    answers = f"{len(x)} {noun}" if whole else f"the answers at the tokens of {len(x)} {noun}"
    return {
        "models": models,
        "orders": {name: importance_order(each, x, y) if "heads" in cuts_of(each) else []
                   for name, each in models.items()},
        "scores": {},
        "seeds": {},
        "inputs": x,
        "labels": y,
        "shown": shown,
        "called": [f"input {at}" for at in range(len(shown))],
        "tokens": [_tokens(each[0], task, names, model) for each in shown],
        "rows": len(x),
        "over": f"{len(x)} rows",
        "answers": answers,
        "image": 0,
    }  # fmt: skip


def _answers(model: Any, inputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    if inputs is None:
        raise TypeError(
            "`inputs` are what the model is asked about: tokens (b, n), or features (b, n, f)"
        )
    x = torch.as_tensor(np.asarray(inputs) if not isinstance(inputs, Tensor) else inputs)
    wanted = 3 if model.features is not None else 2
    if x.dim() != wanted or not 1 < len(x) <= MOST_ROWS or not x.numel():
        raise ValueError(
            f"`inputs` should be {'features (b, n, f)' if wanted == 3 else 'tokens (b, n)'} with 2 "
            f"to {MOST_ROWS:,} rows, got shape {tuple(x.shape)}"
        )
    home = next(model.parameters())
    x = x.to(home.device, home.dtype) if wanted == 3 else x.to(home.device)
    if model.kind == "language_model":
        if labels is not None:
            raise ValueError(
                "a language model is asked for the next token of `inputs`; leave `labels` out"
            )
        if x.shape[1] < 2:
            raise ValueError("`inputs` of a language model should have at least 2 tokens a row")
        x, y = x[:, :-1], x[:, 1:]
    else:
        if labels is None:
            raise TypeError("`labels` are the right answers of a classifier: give one for each row")
        y = torch.as_tensor(np.asarray(labels) if not isinstance(labels, Tensor) else labels)
        y = y.to(home.device)
        shape = (len(x),) if model.kind == "classifier" else tuple(x.shape[:2])
        if tuple(y.shape) != shape or y.is_floating_point():
            raise ValueError(
                f"`labels` should be integers of shape {shape}, got {y.dtype} of shape "
                f"{tuple(y.shape)}"
            )
    with torch.no_grad():
        logits = model(x[:2])  # the model's own words for what does not fit
    if y.min() < 0 or y.max() >= logits.shape[-1]:
        raise ValueError(
            f"`labels` should be 0 to {logits.shape[-1] - 1}, as the model has "
            f"{logits.shape[-1]} answers, got {int(y.min())} to {int(y.max())}"
        )
    return x, y.long()


def _tokens(row: Tensor, task: Any, names: Any, model: Any) -> list[str]:
    if names is not None and task is not None:
        raise ValueError("`task` and `names` both name the tokens: give one of the two")
    if model.features is not None:
        return [f"token {i}" for i in range(len(row))]
    if task is not None:
        if not hasattr(task, "tokens"):
            raise TypeError(f"`task` cannot name tokens, being {type(task).__name__}")
        return [visible(token, 16) for token in task.tokens(row.cpu())]
    if names is None:
        return [f"#{int(i)}" for i in row]
    if len(names) != model.vocab:
        raise ValueError(
            f"`names` should name the {model.vocab} tokens of the vocabulary, got {len(names)}"
        )
    return [visible(str(names[check_integer("a token", int(i))]), 16) for i in row]
