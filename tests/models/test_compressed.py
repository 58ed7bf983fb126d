"""A compressed file that is damaged, hostile or of another module is refused in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.models.compressed import load_compressed, save_compressed
from attnlab.models.storage import DIGEST, load_tensors, read_told, save_tensors

WAYS = ("quantization", "kmeans_weights", "magnitude_pruning", "structured_pruning")
FIRST = "embedding"  # the layer that the file tells of first


def model(**options: Any) -> attnlab.TinyTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        given = {"dim": 12, "heads": 2, "layers": 1} | options
        return attnlab.TinyTransformer(29, attention="full", **given)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    save_compressed(attnlab.build("quantization")(model()), path)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_module_with_more_layers_is_another_one(way: str, tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    smaller = attnlab.build(way)(model())
    save_compressed(smaller, path)
    ids = torch.arange(7)[None]
    assert torch.equal(load_compressed(path, model())(ids), smaller(ids))
    for other in (model(layers=2), model(dim=24), torch.nn.Linear(3, 3)):
        with pytest.raises(ValueError, match="is of another module"):
            load_compressed(path, other)
    with pytest.raises(ValueError, match="the module is on the meta device"):
        load_compressed(path, model().to("meta"))


def of_first(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    return lambda told: change(told[FIRST])


HOSTILE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a list": (lambda told: [told], "an object of JSON is expected"),
    "a layer that is a number": (lambda told: {FIRST: 5}, "'int' object is not subscriptable"),
    "another kind": (of_first(lambda own: own.update(kind="x")), "there is no kind 'x'"),
    "bits": (of_first(lambda own: own.update(bits=99)), "bits should be from 2 to 8"),
    "activations": (of_first(lambda own: own.update(activations="x")), "no activations 'x'"),
    "a negative size": (of_first(lambda own: own.update(shape=[-1, 2])), "a shape is of sizes"),
    "a vast size": (of_first(lambda own: own.update(shape=[2**40] * 2)), "a shape is of sizes"),
    "another shape": (of_first(lambda own: own.update(shape=[12, 29])), "is of another module"),
    "the same as nothing": (of_first(lambda own: own.update(same="x")), "'x' is missing"),
    **{
        f"without {key}": (
            of_first(lambda own, key=key: own.pop(key) and None),
            f"'{key}' is missing",
        )
        for key in ("kind", "bits", "scheme", "per", "shape", "activations", "same")
    },
}


@pytest.mark.parametrize(("change", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_what_a_file_tells_is_not_believed(change, sentence: str, file: Path) -> None:
    told = json.loads(read_told(file)["compressed"])
    assert next(iter(told)) == FIRST
    changed = change(told)
    text = json.dumps(told if changed is None else changed)
    save_tensors(load_tensors(file), file, {"compressed": text})
    with pytest.raises(ValueError, match=sentence):
        load_compressed(file, model())


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "NaN"], ids=["cut", "brackets", "NaN"])
def test_what_is_no_json_is_refused(text: str, file: Path) -> None:
    save_tensors(load_tensors(file), file, {"compressed": text})
    with pytest.raises(ValueError, match="tells of a compression that attnlab does not know"):
        load_compressed(file, model())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x.pop("decoder.norm.bias"), r"decoder\.norm\.bias is missing in one of them"),
        (lambda x: x.pop(f"{FIRST}.zero"), rf"lacks {FIRST}\.zero"),
        (lambda x: x.pop(f"{FIRST}.q"), rf"lacks {FIRST}\.q"),
        (lambda x: x.update({f"{FIRST}.q": x[f"{FIRST}.q"][:1]}), r"as \(1,\), not"),
        (lambda x: x.update({f"{FIRST}.q": x[f"{FIRST}.q"].float()}), "not as bytes"),
        (lambda x: x.update(more=torch.ones(2)), "more is missing in one of them"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(change, sentence, file: Path) -> None:
    tensors, told = load_tensors(file), read_told(file)
    change(tensors)
    save_tensors(tensors, file, told)
    with pytest.raises(ValueError, match=sentence):
        load_compressed(file, model())


def test_a_flip_in_the_name_of_the_digest_does_not_switch_it_off(file: Path) -> None:
    whole = file.read_bytes()
    at = whole.index(DIGEST.encode())
    for bit in range(8 * len(DIGEST)):
        flipped = bytearray(whole)
        flipped[at + bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"damaged or changed|not a readable safetensors"):
            load_compressed(file, model())
