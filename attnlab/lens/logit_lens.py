r"""The logit lens: what a model would answer if it stopped after each of its layers.

The stream after layer l is read as if it were the last, through the model's own last norm and
output matrix:

$$\ell_l = W\,\mathrm{LN}(x_l) + b,\qquad l = 0, \dots, L$$

$x_0$ is the stream before the first layer, the vectors of tokens at their positions, and $\ell_L$
are the model's own logits. One sees after which layer the answer is there. Nothing was trained to
be read so early: a layer may hold the answer in directions that only later layers turn towards the
output, so a lens that shows nothing does not prove that nothing is there, as a probe
(``attnlab.lens.probes``) may find it.

With post-norm the stream after a layer is normalised already, and no last norm stands between it
and the output matrix; the stream before the first layer is not.

nostalgebraist. Interpreting GPT: the Logit Lens. 2020. Belrose et al. Eliciting Latent Predictions
from Transformers with the Tuned Lens. 2023, arXiv:2303.08112, section 2.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.core.modes import mode
from attnlab.lens.logit_parts import answers_of
from attnlab.lens.stream import followed
from attnlab.models.tiny import TinyTransformer


class LogitLens(NamedTuple):
    """The logits after every layer.

    ``names``   what has been read so far: "embedding", "layer 0", …; or with ``sublayers`` also
                "attention 0", "feed-forward 0", …
    ``logits``  (s, b, n, vocab) one for each name, of a classifier (s, b, classes); the last are
                the model's own
    ``real``    (b, n) bool, True = a real token; (b,) of a classifier
    """

    names: list[str]
    logits: Tensor
    real: Tensor

    def ranks(self, answers: int | Tensor) -> Tensor:
        """(s, b, n) int64: how many other answers have a logit at least as large as that of this
        one; 0 is the first, alone."""
        own = self._own(self.logits, answers)
        return (self.logits >= own[..., None]).sum(-1) - 1

    def probabilities(self, answers: int | Tensor) -> Tensor:
        """(s, b, n): how probable the answer is."""
        return self._own(self.logits.softmax(-1), answers)

    def right(self, answers: int | Tensor, where: Tensor | None = None) -> list[float]:
        """After each of ``names``, the share of positions at which every other answer has a
        smaller logit: of all real positions, or of those ``where`` (b, n) is True."""
        counts = self.real if where is None else where & self.real
        if not bool(counts.any()):
            raise ValueError("no position is left: where is False at every real token")
        first = (self.ranks(answers) == 0)[:, counts]
        return [float(each) for each in first.double().mean(-1)]

    def _own(self, of: Tensor, answers: int | Tensor) -> Tensor:
        shape, count = self.logits.shape[1:-1], self.logits.shape[-1]
        chosen = answers_of("answers", answers, shape, count, of.device)
        return of.gather(-1, chosen.expand(len(of), *shape)[..., None])[..., 0]


def logit_lens(
    model: TinyTransformer,
    tokens: Tensor,
    *,
    padding: Tensor | None = None,
    sublayers: bool = False,
    **more: Any,
) -> LogitLens:
    """The logits that each layer's stream would give.

    model:     a TinyTransformer of any kind; of an encoder-decoder the decoder is read. A
               classifier answers from the mean over all real positions, here after every layer.
    tokens:    (b, n), as the model is called.
    padding:   (b, n) bool, True = a real token.
    sublayers: read the stream after attention, too, not after whole layers alone.
    more:      other arguments of the model, such as ``source=``.

    The model is left as it was, and no gradient is computed. Memory: (s, b, n, vocab). Raises a
    ValueError where the layers do not stand one after another on one stream.
    """
    run = followed(model, tokens, padding, **more)
    if sublayers:
        streams = {"embedding": run.start, **{step.name: step.after for step in run.steps}}
    else:
        names = ["embedding", *(f"layer {layer}" for layer in range(run.layers))]
        streams = dict(zip(names, run.after_layers(), strict=True))
    real = run.real(padding)
    pooled = run.model.kind == "classifier"
    with mode(run.model, training=False), torch.no_grad():
        normed = torch.stack([run.norm(x) for x in streams.values()])
        if pooled:
            share = real.to(normed) / real.sum(1, keepdim=True).clamp_min(1)
            normed = torch.einsum("sbnd,bn->sbd", normed, share)
        found = run.model.logits(normed)
    return LogitLens([*streams], found, real.any(1) if pooled else real)
