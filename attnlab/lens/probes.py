r"""Linear probes: what can be read off the frozen states of an encoder, layer by layer?

A model has been trained for something, and is not trained any more. Its states $h_i^{(l)}$, of
token i after layer l (layer 0 is the embedding), are given to a linear classifier that is asked a
question with known answers, such as "does this token stand in brackets?":

$$p(\text{yes} \mid i) = \sigma(w^\top \hat h_i^{(l)} + c),\qquad
  \hat h = \text{the state with mean 0 and variance 1 in each coordinate}$$

If the probe is right on texts that it has not seen, the answer is in the state, in a form that one
hyperplane reads. Two controls say what that is worth, and both belong beside every number:

**A random encoder.** The states of the same model with untrained weights hold the token, its
position and a random mixture of the others, and a probe reads much off that. What a training has
added is the difference.

**Shuffled labels.** The same probe is trained on labels in a random order, which hold nothing to be
learned. What it has right on new texts is what guessing gives, with its chance; clearly more would
mean that one class is more frequent than the others.

Classes are drawn equally often (``balanced``), so that guessing is right for 1 / classes of them.
A probe that fails says that the answer is not there in a linear form, not that it is not there. A
probe that succeeds does not say that the model uses it.

Alain, Bengio. Understanding intermediate layers using linear classifier probes. arXiv 2016,
arXiv:1610.01644. Hewitt, Liang. Designing and Interpreting Probes with Control Tasks. EMNLP 2019,
arXiv:1909.03368. Tenney, Das, Pavlick. BERT Rediscovers the Classical NLP Pipeline. ACL 2019,
arXiv:1905.05950.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.models.layers import Stack

STRENGTH = 0.1
"""C of scikit-learn: the smaller it is, the more strongly the weights of a probe are drawn to 0."""


class Probed(NamedTuple):
    """The share of answers that are right, one number for each layer, the embedding first."""

    right: Float[Tensor, "layers"]
    shuffled: Float[Tensor, "layers"]
    """The same after training on labels in a random order."""


@torch.no_grad()
def layer_states(
    model: nn.Module, read: Callable[[Any], Any] | None = None, *, tokens: Tensor
) -> Float[Tensor, "layers b n dim"]:
    """What enters the first layer of a model, and what leaves each layer, frozen.

    read: how a model of attnlab is called with tokens; not given, as ``model(tokens)``. A model of
        Transformers is asked for its ``hidden_states``, the last of which are, in many models,
        those after the last norm; of an encoder-decoder those of its encoder are read.

    Raises ValueError for a model without layers that are called one after the other.
    """
    stack = next((part for part in model.modules() if isinstance(part, Stack)), None)
    if stack is None and hasattr(getattr(model, "config", None), "output_hidden_states"):
        both: Any = model
        encoder = both.get_encoder() if both.config.is_encoder_decoder else both
        with mode(model, training=False):
            made = encoder(input_ids=tokens, output_hidden_states=True)
        return torch.stack(made.hidden_states)
    if stack is None:
        raise ValueError(
            f"a {type(model).__name__} has no stack of layers whose states could be read; give a "
            "TinyTransformer, or a model of Transformers"
        )
    seen = list[Tensor]()

    def before(_: nn.Module, args: tuple[Any, ...]) -> None:
        if not seen:
            seen.append(args[0].detach())

    def after(_: nn.Module, __: Any, out: Any) -> None:
        seen.append((out[0] if isinstance(out, tuple) else out).detach())

    blocks: Any = stack.blocks
    handles = [blocks[0].register_forward_pre_hook(before)]
    handles += [block.register_forward_hook(after) for block in blocks]
    try:
        with mode(model, training=False):
            model(tokens) if read is None else read(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(seen)


def balanced(
    labels: Int[Tensor, "m"], count: int, generator: torch.Generator | None = None
) -> Int[Tensor, "c"]:
    """Places of ``count`` labels, or a few less, so that each class is drawn equally often and no
    place twice.

    Raises ValueError where a class has too few, or ``count`` is less than there are classes.
    """
    classes = labels.unique()
    if len(classes) < 2:
        raise ValueError("all labels are equal, so there is nothing to be asked")
    check_integer("count", count, at_least=len(classes))
    each, found = count // len(classes), list[Tensor]()
    for one in classes:
        places = (labels == one).nonzero()[:, 0]
        if len(places) < each:
            raise ValueError(
                f"{each} examples of label {one.item()} are wanted and there are {len(places)}; "
                "give more texts, or a smaller count"
            )
        found.append(places[torch.randperm(len(places), generator=generator)[:each]])
    return torch.cat(found)


Labels = Int[Tensor, "m"] | Sequence[Hashable]
"""One for each state: integers, or names of any kind."""


def linear_probe(
    states: Float[Tensor, "m d"], labels: Int[Tensor, "m"], new: Float[Tensor, "k d"]
) -> Int[Tensor, "k"]:
    """The answers to new states of a linear classifier that was trained on states with labels.

    Needs scikit-learn. Raises ValueError for labels of another length, or of one class.
    """
    from sklearn.linear_model import LogisticRegression

    if len(labels) != len(states):
        raise ValueError(f"there are {len(states)} states and {len(labels)} labels of them")
    if len(labels.unique()) < 2:
        raise ValueError("all labels are equal, so there is nothing to be asked")
    mean, spread = states.mean(0), states.std(0, correction=0).clamp(min=1e-6)
    x, y = (((each - mean) / spread).double().numpy() for each in (states, new))
    fitted = LogisticRegression(C=STRENGTH, max_iter=300).fit(x, labels.numpy())
    return torch.from_numpy(np.asarray(fitted.predict(y)))


def probe(
    states: Float[Tensor, "layers m d"], labels: Labels,
    new: Float[Tensor, "layers k d"], answers: Labels,
    generator: torch.Generator | None = None,
) -> Probed:  # fmt: skip
    """How many ``answers`` to new states a probe of each layer has right, and how many the same
    probe after training on the labels in a random order.

    Raises ValueError where states, labels and answers do not fit, or where an answer is asked that
    no label has.
    """
    if len(states) != len(new):
        raise ValueError(
            f"states of {len(states)} layers are learned from and those of {len(new)} are asked"
        )
    if len(answers) != new.shape[1]:
        raise ValueError(f"there are {new.shape[1]} new states and {len(answers)} answers to them")
    known, wanted = _numbered(labels, answers)
    mixed = known[torch.randperm(len(known), generator=generator)]
    found = [
        [(linear_probe(x, y, z) == wanted).double().mean() for y in (known, mixed)]
        for x, z in zip(states, new, strict=True)
    ]
    right, shuffled = torch.tensor(found, dtype=torch.float64).T
    return Probed(right, shuffled)


def _numbered(labels: Labels, answers: Labels) -> tuple[Tensor, Tensor]:
    """Both as numbers of the classes that the labels have."""
    known, wanted = (x.tolist() if isinstance(x, Tensor) else list(x) for x in (labels, answers))
    classes = sorted(set(known)) if isinstance(labels, Tensor) else dict.fromkeys(known)
    numbers = {label: number for number, label in enumerate(classes)}
    if strange := [each for each in dict.fromkeys(wanted) if each not in numbers]:
        raise ValueError(
            f"the answer {strange[0]!r} is asked and no label has it, so no probe could learn it"
        )
    return tuple(torch.tensor([numbers[each] for each in x]) for x in (known, wanted))  # type: ignore[return-value]
