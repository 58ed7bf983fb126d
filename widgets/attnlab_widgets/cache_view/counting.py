"""How the layers of a model keep what they keep, from ``attnlab.measure.cache``.

    python -m attnlab_widgets.cache_view.counting PATH      # writes models.json

Each layer is counted at a few lengths. What grows with every token has a number of bytes for each;
what stops growing keeps a window; what never grows is a state.
"""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from attnlab.measure.cache import Kept, kept
from attnlab_widgets.cache_view.bills import Kind

FIRST, SHORT, LONG = 1, 65_536, 131_072
MODELS = (
    "llama", "gemma3_text", "gemma3n", "llama4_text", "gpt_oss", "deepseek_v3", "qwen3_next",
    "kimi_linear", "mamba2",
)  # fmt: skip


def counted(model: object) -> tuple[dict[str, Kind], list[str]]:
    """The kinds of layers of a model, by short names, and the kind of each layer."""
    found = [kept(model, tokens) for tokens in (FIRST, SHORT, LONG)]
    kinds: dict[str, Kind] = {}
    layers = []
    for layer in range(len(found[0].layers)):
        kind = _kind(found, layer)
        name = next((name for name, known in kinds.items() if known == kind), "")
        if not name:
            name = _free(_name(kind), kinds)
            kinds[name] = kind
        layers.append(name)
    return kinds, layers


def _kind(found: list[Kept], number: int) -> Kind:
    layers = [one.layers[number] for one in found]
    first, short, long = (layer.bytes for layer in layers)
    fields = {name for name, _ in layers[-1].parts}
    rounds = fields >= {"keys", "values"} and not fields - {"keys", "values", "places"}
    title = layers[-1].kind
    if short < long:
        per_token = (long - short) / (LONG - SHORT)
        sizes = dict(layers[-1].parts)
        rounds = rounds and sizes["keys"] == sizes["values"]
        return Kind(title, per_token, None, short - SHORT * per_token, rounds)
    if first < long:
        cap = round(long / first)
        named = title if "window" in title else f"{title}, {cap:,} tokens"
        return Kind(named, first, cap, 0, rounds)
    named = {"state": "a state"}.get(title, title)
    return Kind(named if long else "the cache of another layer", 0, None, long)


def _name(kind: Kind) -> str:
    if not kind.per_token:
        return "state" if kind.fixed else "shared"
    return "all" if kind.cap is None else "window"


def _free(name: str, taken: dict[str, Kind]) -> str:
    number = 2
    while name in taken:
        name, number = f"{name.rstrip('23456789')}{number}", number + 1
    return name


def shape(name: str) -> dict[str, Any]:
    """Heads, groups and their width, and the window, of a default configuration."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config: Any = CONFIG_MAPPING[name]().get_text_config(decoder=True)
    heads = getattr(config, "num_attention_heads", None) or config.num_heads
    named = ("v_head_dim", "head_dim")  # the first is that of latents, where the two differ
    width = next((w for n in named if (w := getattr(config, n, None))), config.hidden_size // heads)
    groups = getattr(config, "num_key_value_heads", None) or heads
    return {
        "heads": heads, "groups": groups, "width": width,
        "window": getattr(config, "sliding_window", None),
    }  # fmt: skip


def model(name: str) -> dict[str, Any]:
    """What ``models.json`` holds of a model."""
    kinds, layers = counted(name)
    runs = [[key, len(list(run))] for key, run in groupby(layers)]
    return {
        "shape": shape(name), "kinds": {key: asdict(kind) for key, kind in kinds.items()},
        "layers": runs,
    }  # fmt: skip


def main() -> None:
    parser = ArgumentParser(prog="python -m attnlab_widgets.cache_view.counting")
    parser.add_argument("path", type=Path, help="where to write; models.json beside this file")
    path = parser.parse_args().path
    from transformers import __version__

    held = {"transformers": __version__, "models": {name: model(name) for name in MODELS}}
    path.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
