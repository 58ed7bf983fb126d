"""`python -m attnlab.measure cache [model …]`: what models of Transformers keep, side by side."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from attnlab.measure.cache import Kept, in_words, kept
from attnlab.measure.command import at_least_one
from attnlab.measure.report import grid

TODAY = (
    "llama", "cohere2", "olmo3", "gemma3_text", "gemma3n", "gemma4_text", "llama4_text", "gpt_oss",
    "mimo_v2_flash", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "deepseek_v4", "minimax",
    "qwen3_next", "qwen3_5_text", "olmo_hybrid", "kimi_linear", "jamba", "falcon_h1", "mamba2",
)  # fmt: skip
"""Models whose layers differ in what they keep, in the order of the table."""

TOKENS = (4096, 131_072, 1_048_576)
_DESCRIPTION = """What a model keeps for its next token, counted without computing it: its default
configuration in Transformers, one sequence, bfloat16."""


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m attnlab.measure cache", description=_DESCRIPTION)
    made.add_argument("names", nargs="*", metavar="model", help="default: models of today")
    made.add_argument("--tokens", nargs="+", type=at_least_one, default=TOKENS, metavar="N")
    made.add_argument("--layers", action="store_true", help="each kind of layer, a line each")
    made.add_argument("--markdown", action="store_true", help="print a Markdown table")
    return made


def main(arguments: Sequence[str]) -> int:
    """Count and show; 2 where a model cannot be counted."""
    options = _parser().parse_args(arguments)
    lines = []
    for name in options.names or TODAY:
        try:
            found = [kept(name, tokens) for tokens in options.tokens]
        except (ValueError, ModuleNotFoundError) as error:
            print(error, file=sys.stderr)
            return 2
        if options.layers:
            print("\n".join(map(str, found)), flush=True)
        lines.append(line(found))
    if not options.layers:
        print(table(lines, options.tokens, markdown=options.markdown))
    return 0


def line(found: Sequence[Kept]) -> tuple[str, ...]:
    """A model's row: its name, its layers by kind, and the bytes after each number of tokens."""
    kinds = Counter(layer.kind for layer in found[-1].layers)
    layers = ", ".join(f"{times} × {kind}" for kind, times in kinds.items())
    return found[0].model, layers, *(in_words(each.bytes) for each in found)


def table(lines: Sequence[Sequence[str]], tokens: Sequence[int], *, markdown: bool = False) -> str:
    headings = ("model", "its layers keep", *(f"{n:,}" for n in tokens))
    return grid(headings, lines, (False, False, *([True] * len(tokens))), markdown=markdown)
