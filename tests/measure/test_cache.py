"""What a model keeps for its next token: counted without numbers as it is kept with them."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.utils._pytree import tree_leaves

import attnlab
from attnlab.measure import cache, cache_command
from attnlab.measure.__main__ import main as measure
from attnlab.measure.costs import Uncountable, decodes
from attnlab.measure.subject import subjects

VERSION = importlib.metadata.version("transformers")
of_transformers = pytest.mark.skipif(
    Version(VERSION) < Version("5"), reason="asks Transformers 5 or later"
)
MIXED = ["longformer", "longformer", "full"]


def model(attention: Any = "full", **options: Any) -> attnlab.TinyTransformer:
    return attnlab.TinyTransformer(16, dim=32, heads=4, layers=3, attention=attention, **options)


def test_full_attention_keeps_keys_and_values_of_all_tokens() -> None:
    found = cache.kept(model(), 1000)
    assert [layer.bytes for layer in found.layers] == 3 * [2 * 1000 * 32 * 2]
    assert found.bytes == 3 * 2 * 1000 * 32 * 2
    assert found.per_token == 3 * 2 * 32 * 2
    assert cache.kept(model(), 1000, dtype=torch.float32).bytes == 2 * found.bytes
    assert dict(found.layers[0].parts) == {"keys": 64_000, "values": 64_000}


def test_a_layer_is_counted_as_its_own_kind() -> None:
    options: Any = [{"window": 8}, {"window": 8}, {}]
    found = cache.kept(model(MIXED, attention_options=options, positions="none"), 100_000)
    near, also_near, all_tokens = (layer.bytes for layer in found.layers)
    assert near == also_near < 20 * 2 * 32 * 2
    assert all_tokens == 100_000 * 2 * 32 * 2


def test_layers_that_differ_in_an_option_are_not_alike() -> None:
    windows: Any = [{"window": 8}, {"window": 12}, {"window": 8}]
    ours = model("longformer", attention_options=windows, positions="none")
    one, other, third = (layer.bytes for layer in cache.kept(ours, 1000).layers)
    assert one == third < other


@pytest.mark.parametrize("name", [one.mechanism for one in subjects() if decodes(one)])
def test_what_is_counted_is_what_is_kept(name: str) -> None:
    n = 24
    ours = model(name, max_len=64, positions="none")
    if not ours.steps_incrementally:
        pytest.skip("this default layer does not read token by token")
    counted = cache.kept(ours, n, dtype=torch.float32)
    _, state = ours.step(torch.zeros(1, n, dtype=torch.int64))
    assert counted.bytes == sum(
        x.numel() * x.element_size()
        for x in tree_leaves(state.layers)
        if isinstance(x, torch.Tensor) and x.ndim
    )


@pytest.mark.parametrize("name", ["linear", "retention", "deltanet", "longformer"])
def test_a_state_that_does_not_grow_is_counted_at_a_million_tokens(name: str) -> None:
    ours = model(name, positions="none")
    assert cache.kept(ours, 1_000_000).bytes == cache.kept(ours, 3000).bytes


def test_the_model_is_left_as_it_was() -> None:
    ours = model()
    before = {name: x.clone() for name, x in ours.state_dict().items()}
    cache.kept(ours, 100)
    assert all(torch.equal(x, before[name]) for name, x in ours.state_dict().items())


def test_it_is_printed_by_kinds_of_layers() -> None:
    options: Any = [{"window": 8}, {"window": 8}, {}]
    text = str(cache.kept(model(MIXED, attention_options=options, positions="none"), 1000))
    first, *lines = text.splitlines()
    assert first.startswith("TinyTransformer: ")
    assert first.endswith("after 1,000 tokens (bfloat16)")
    assert [line.split(":")[0] for line in lines] == ["  2 × longformer", "  1 × full"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_700, "1 MB"), (2e15, "2e+03 TB")],
)
def test_sizes_in_words(size: float, text: str) -> None:
    assert cache.in_words(size) == text


# -------------------------------------------------------------------------- models of Transformers

SMALL: dict[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window": 8, "head_dim": 16, "num_key_value_heads": 2},
    "gpt_oss": {"sliding_window": 8, "head_dim": 16, "num_key_value_heads": 2,
                "num_local_experts": 2, "num_experts_per_tok": 1},
    "qwen3_next": {"head_dim": 16, "num_key_value_heads": 2, "num_experts": 2,
                   "num_experts_per_tok": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                   "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                   "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "deepseek_v3": {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8,
                    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 8, "n_group": 2,
                    "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                    "first_k_dense_replace": 2, "num_key_value_heads": 4},
    "llama": {"num_key_value_heads": 2},
    "minimax": {"head_dim": 16, "num_key_value_heads": 2, "num_local_experts": 2,
                "num_experts_per_tok": 1, "block_size": 16},
}  # fmt: skip


def small(name: str) -> Any:
    import transformers

    return transformers.AutoConfig.for_model(
        name, vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SMALL[name],
    )  # fmt: skip


@of_transformers
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("n", [5, 100])
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_transformers_keeps_what_is_counted(name: str, n: int) -> None:
    import transformers

    torch.manual_seed(0)
    theirs: Any = transformers.AutoModelForCausalLM.from_config(small(name)).eval()
    with torch.no_grad():
        out = theirs(torch.randint(3, 32, (1, n)), use_cache=True).past_key_values
    held: list[Any] = [list(vars(layer).values()) for layer in out.layers]
    held += [getattr(out, "linear_cache", [])]
    held = [list(x.values()) if isinstance(x, dict) else x for row in held for x in row]
    tensors = [x for x in tree_leaves(held) if isinstance(x, torch.Tensor) and x.ndim]
    really = sum(x.numel() * x.element_size() for x in tensors)
    assert cache.kept(theirs, n, dtype=torch.float32).bytes == really
    assert cache.kept(theirs.config, n, dtype=torch.float32).bytes == really


@of_transformers
@pytest.mark.filterwarnings("ignore")
def test_deepseeks_cache_has_the_published_size() -> None:
    """DeepSeek-V3, 2024, arXiv:2412.19437: 512 + 64 numbers for a token and layer, 61 layers."""
    found = cache.kept("deepseek_v3", 1000)
    assert len(found.layers) == 61
    assert found.per_token == 61 * (512 + 64) * 2 == 70_272


@of_transformers
@pytest.mark.filterwarnings("ignore")
def test_layers_that_read_those_of_others_keep_nothing() -> None:
    """Gemma 3n: the last 15 of 35 layers make no keys and values."""
    kinds = [layer.bytes for layer in cache.kept("gemma3n", 100).layers]
    assert [size > 0 for size in kinds] == [True] * 20 + [False] * 15


GUIDE = Path(__file__).parents[2] / "docs/guides/what_models_keep.md"
TABLE = GUIDE.read_text(encoding="utf-8").partition("## Models of today")[2].partition("\n## ")[0]
WRITTEN = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ") and not line.startswith("| -")
]


def test_the_guide_lists_the_models_of_the_command() -> None:
    models = [row[0] for row in WRITTEN[1:]]
    assert models == [name + "_text" * (name == "gemma3n") for name in cache_command.TODAY]
    assert WRITTEN[0][2:] == [f"{n:,}" for n in cache_command.TOKENS]


@of_transformers
@pytest.mark.parametrize("name", ["gpt_oss", "jamba", "mimo_v2_flash"])
@pytest.mark.filterwarnings("ignore")
def test_the_guide_prints_what_is_counted(name: str) -> None:
    found = [cache.kept(name, n) for n in cache_command.TOKENS]
    written = next(row for row in WRITTEN if row[0] == name)
    if f"Transformers {'.'.join(VERSION.split('.')[:2])}" not in GUIDE.read_text(encoding="utf-8"):
        pytest.skip("the default configurations of another version may be others")
    assert list(cache_command.line(found)) == written


def test_the_guides_sentences_follow_from_its_table() -> None:
    """gpt_oss: windows of 128 keep 127 tokens of 2 x 8 x 64 numbers; DeepSeek keeps 512 + 64."""
    assert cache.in_words(18 * 127 * 2 * 8 * 64 * 2) == "4.68 MB"
    assert cache.in_words(18 * 1_048_576 * 2 * 8 * 64 * 2) == "38.7 GB"
    kept = next(row for row in WRITTEN if row[0] == "deepseek_v3")[4]
    assert cache.in_words(61 * (512 + 64) * 2 * 1_048_576) == kept
    kept = next(row for row in WRITTEN if row[0] == "deepseek_v32")[4]
    assert cache.in_words(61 * (512 + 64 + 128) * 2 * 1_048_576) == kept


@of_transformers
@pytest.mark.filterwarnings("ignore")
def test_the_command_prints_a_table_and_refuses_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert measure(["cache", "llama", "--tokens", "10", "1000"]) == 0
    assert "32 × all tokens" in (shown := capsys.readouterr().out)
    assert shown.splitlines()[0].split()[-2:] == ["10", "1,000"]
    assert measure(["cache", "llamma"]) == 2
    assert "did you mean 'llama'" in capsys.readouterr().err
    assert measure(["cache", "llama", "--tokens", "1", "--layers"]) == 0
    assert capsys.readouterr().out.startswith("llama: 524 kB after 1 token (bfloat16)\n  32 × all")


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "tokens", "options", "kind", "words"),
    [
        (model(), 0, {}, ValueError, "tokens"),
        (model(), 1.5, {}, TypeError, "tokens"),
        (model(), 8, {"dtype": torch.int8}, TypeError, "a float dtype"),
        (model(), 8, {"dtype": "bfloat16"}, TypeError, "a float dtype"),
        (model("fnet", kind="classifier", classes=2), 8, {}, Uncountable, "token by token"),
        pytest.param(torch.nn.Linear(2, 2), 8, {}, TypeError, "Linear", marks=of_transformers),
        pytest.param("gpt_os", 8, {}, ValueError, "did you mean 'gpt_oss'", marks=of_transformers),
        pytest.param("xlstm", 8, {}, Uncountable, "cache with layers", marks=of_transformers),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_refusals(given: Any, tokens: Any, options: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        cache.kept(given, tokens, **options)
