"""TorchScale's switches as options of a TinyTransformer, and which of two that exclude each other
wins.

The library has one encoder, one decoder and switches: ``subln`` (on by default), ``deepnorm``, drop
path, xPos, and others that are not here. Its configuration lets DeepNorm clear Sub-LN, so with both
switched on a model has DeepNorm; with neither it has pre-norm.

Ma and others, TorchScale: Transformers at Scale, 2022, arXiv:2211.13184.
"""

from typing import Any

from attnlab.models.options import check_real, check_switch


def torchscale(
    *, subln: bool = True, deepnorm: bool = False, drop_path_rate: float = 0.0, xpos: bool = False
) -> dict[str, Any]:
    """The options of a ``TinyTransformer`` that has the joins and positions of these switches.

    xpos: rotated queries and keys whose scores fall with the distance, for a decoder.

    A ValueError for drop path beside one of the first two: here drop path is a join of its own, on
    pre-norm. A TypeError for a switch that is neither True nor False.
    """
    for name, switch in (("subln", subln), ("deepnorm", deepnorm), ("xpos", xpos)):
        check_switch(name, switch)
    rate = check_real("drop_path_rate", drop_path_rate)
    join = "deep_norm" if deepnorm else "sub_ln" if subln else "pre_norm"
    turned = {"positions": "rope", "position_options": {"scaling": "xpos"}}
    found: dict[str, Any] = turned if xpos else {}
    if not rate:
        return found | {"join": join}
    if join != "pre_norm":
        raise ValueError(
            f"drop_path_rate={rate} needs subln=False and deepnorm=False here, where drop path is "
            f"a join of its own; these switches give join={join!r}"
        )
    return found | {"join": "drop_path", "join_options": {"rate": rate}}
