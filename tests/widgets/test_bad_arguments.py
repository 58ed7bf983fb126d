"""Bad arguments of the widgets: each is refused in a sentence that says what was expected."""

import math

import attnlab_widgets
import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.attention_explorer import AttentionExplorer
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.bertviz import to_bertviz
from attnlab_widgets.graph_view import GraphView
from attnlab_widgets.head_switchboard import HeadSwitchboard
from attnlab_widgets.kernel_lab import KernelLab
from attnlab_widgets.predict import ask
from attnlab_widgets.query_on_a_plane import QueryOnAPlane
from attnlab_widgets.synthesizer_lab import SynthesizerLab
from attnlab_widgets.tree_explorer import TreeExplorer

from attnlab.lens.kernel_maps import Choice
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

MAPS = torch.full((2, 3, 5, 5), 0.2)
META, SPARSE = torch.ones(2, 3, 5, 5, device="meta"), torch.ones(5).to_sparse()
TOKENS = [*"abcde"]


class Alone(torch.nn.Module):
    """No attention: each position stays by itself."""

    def forward(self, x, padding=None):
        return x


SMALL = {"dim": 8, "layers": 2, "heads": 2, "max_len": 16}
CLASSIFIER = TinyTransformer(5, kind="classifier", classes=2, **SMALL)
MIXER = TinyTransformer(5, attention=[Alone(), Alone()], **SMALL)
NINE = TinyTransformer(5, **(SMALL | {"dim": 9, "layers": 3, "heads": 3}))
LANGUAGE = TinyTransformer(5, **SMALL)


def switchboard(text="ab", model=LANGUAGE, **options):
    return HeadSwitchboard(model, text, **options)


PATH = Graph(3, [(0, 1), (1, 2)])


def asked_of(choices):
    return ask("Which?", choices, "a", "It is.")


REFUSED = [
    (lambda: AttentionView(META), "dense tensors with values, got .* on meta"),
    (lambda: AttentionView(MAPS, META[0, 0, 0]), "`tokens` should be a dense tensor with values"),
    (lambda: AttentionView(MAPS, SPARSE), "`tokens` should be a dense tensor with values"),
    (lambda: AttentionView(MAPS, names=None), "`names` should be a list, got None"),
    (lambda: AttentionView(MAPS, names=(1, 2)), "`names` should hold texts, got 1"),
    (lambda: AttentionView(MAPS, batch=np.ones(3)), "`batch` should be a whole number"),
    (lambda: AttentionView(MAPS, batch=0.5), "`batch` should be a whole number, got 0.5"),
    (lambda: AttentionView(MAPS, batch=None), "`batch` should be a whole number, got None"),
    (lambda: asked_of(None), "`choices` should be a list, got None"),
    (lambda: asked_of({"a": 1, "b": 2}), "`choices` should be a list"),
    (lambda: to_bertviz(MAPS, None), "`tokens` should be a list, got None"),
    (lambda: to_bertviz(MAPS, TOKENS, np.ones(3)), '`view` should be "head", "model" or "neuron"'),
    (lambda: Choice(features="64"), "`features` should be a whole number, got '64'"),
    (lambda: Choice(features=1.5), "`features` should be a whole number, got 1.5"),
    (lambda: Choice(seed=0.5), "`seed` should be a whole number, got 0.5"),
    (lambda: Choice(orthogonal=1), "`orthogonal` should be True or False, got 1"),
    (lambda: Choice(temperature="1"), "`temperature` should be a finite number, got '1'"),
    (lambda: Choice(temperature=math.nan), "`temperature` should be a finite number, got nan"),
    (lambda: KernelLab(causal=1), "`causal` should be True or False, got 1"),
    (lambda: KernelLab(length=1.5), "`length` should be a whole number, got 1.5"),
    (lambda: KernelLab(length=10**9), "`length` should be 1 to 8192 tokens, got 1000000000"),
    (lambda: SynthesizerLab(steps=0), "`steps` should be 1 to 5000 steps, got 0"),
    (lambda: SynthesizerLab(seed=-1), "`seed` should be at least 0, got -1"),
    (lambda: SynthesizerLab(3), "`variants` should be a list, got 3"),
    (lambda: AttentionExplorer(3), "`text` should be text, got 3"),
    (lambda: AttentionExplorer(mechanisms=3), "`mechanisms` should be a list, got 3"),
    (lambda: AttentionExplorer(mechanisms=[["full"]]), "`mechanisms` should hold texts"),
    (lambda: AttentionExplorer(trained=[1, 0]), "`trained` should say True or False"),
    (lambda: AttentionExplorer(untrained=[3]), "`untrained` should map names to values"),
    (lambda: GraphView(3), r"`graph` should have 2 axes \(m, 2\)"),
    (lambda: GraphView(torch.ones(3, 2)), "or whole numbers .m, 2., .* got float64"),
    (lambda: GraphView([[0, 1, 2]]), r"got int64 of shape \(1, 3\)"),
    (lambda: GraphView([[0, 3]], labels=["a", "b"]), "edge 0 leads from 0 to 3, but the nodes are"),
    (lambda: GraphView(GraphBatch.of([PATH])), r"got a batch; give batch.graph\(0\)"),
    (lambda: GraphView(Graph(501)), "a graph of 501 nodes is more than the 500 that are drawn"),
    (
        lambda: GraphView(PATH, MAPS),
        "of layer 0 are 5 × 5, but the graph has 3 nodes; give weights",
    ),
    (lambda: GraphView(PATH, MAPS[0, 0, :3]), "of layer 0 are 3 × 5, but the graph has 3 nodes"),
    (lambda: GraphView(PATH, torch.ones(1, 2, 7)), "for each of the 2 edges"),
    (lambda: GraphView(PATH, META), "dense tensors with values, got .* on meta"),
    (lambda: GraphView(PATH, "full"), "should be a recording of attnlab.watch"),
    (lambda: GraphView(PATH, -MAPS[:, :, :3, :3]), "should be from 0 to 1, .* there is -0.2"),
    (lambda: GraphView(PATH, torch.full((1, 1, 2), 1.5)), "in layer 0 there is 1.5"),
    (lambda: GraphView(PATH, torch.full((9, 1300, 3, 3), 0.3)), "there are 105,300 weights, more"),
    (lambda: GraphView(PATH, MAPS[:, :, :3, :3], batch=1), "`batch` is 1, but layer 0"),
    (lambda: GraphView(PATH, batch=1), "`batch` chooses a row of recorded weights; there are none"),
    (lambda: GraphView(PATH, inputs=MAPS), "`inputs` are for a model; `weights` is none"),
    (lambda: GraphView(PATH, MIXER), "a model needs `inputs`, what it reads at the nodes"),
    (lambda: GraphView(PATH, MIXER, inputs=torch.ones(5)), r"at the 3 nodes, .* got \(5,\)"),
    (lambda: GraphView(PATH, MIXER, inputs=[1, 2, 3]), "tokens .n,. or vectors .n, dim., got list"),
    (lambda: GraphView(PATH, labels=["a"]), "`labels` has 1 labels for 3 nodes"),
    (lambda: GraphView(PATH, labels="abc"), "`labels` should be a list, got 'abc'"),
    (lambda: GraphView(PATH, groups=[1, 2]), "`groups` has 2 labels for 3 nodes"),
    (lambda: HeadSwitchboard(torch.nn.Linear(2, 2), "ab"), "`model` should be a TinyTransformer"),
    (lambda: switchboard(model=CLASSIFIER), "a language model, got one of kind='classifier'"),
    (lambda: switchboard(model=MIXER), "`model` has no attention heads that could be silenced"),
    (lambda: switchboard("Ab"), "should consist of the letters a … z, got 'A'"),
    (lambda: switchboard("a"), "`text` should have 2 to 16 tokens, got 1"),
    (lambda: switchboard("ab" * 9), "`text` should have 2 to 16 tokens, got 18"),
    (lambda: switchboard("az"), "the tokens of this model are 0 … 4, got 25"),
    (lambda: switchboard(3), "`text` should have 1 axes"),
    (lambda: switchboard([0.5, 1]), "or tokens as whole numbers, got float64"),
    (lambda: switchboard([1, 2], tokens=["a"]), "`tokens` has 1 labels for 2 tokens"),
    (lambda: switchboard("ab", tokens=["a", "b"]), "`tokens` names given tokens"),
    (lambda: switchboard("ab", task=3), "`task` has no text of its own to encode, being int"),
    (lambda: switchboard([1, 2], task=3, tokens=["a", "b"]), "give one of the two"),
    (lambda: switchboard([1, 2], task=3), "`task` cannot name tokens, being int"),
    (lambda: switchboard(model=NINE), "this model has 9 heads, and at most 8 can be switches"),
    (lambda: switchboard(heads=[]), "`heads` should be 1 to 8 different heads, got 0"),
    (lambda: switchboard(heads=3), "`heads` should be a list, got 3"),
    (lambda: switchboard(heads=[3]), "`a head of heads` should be a list, got 3"),
    (lambda: switchboard(heads=[(0, 1, 2)]), r"pairs \(layer, head\), got \(0, 1, 2\)"),
    (lambda: switchboard(heads=[(0, 0.5)]), "a number in `heads` should be a whole number"),
    (lambda: switchboard(heads=[(2, 0)]), "no head 2.0: its layers 0 … 1 have 2, 2 heads"),
    (lambda: switchboard(silent=[(2, 0)]), "head 2.0 is no switch here; those are 0.0, 0.1"),
    (lambda: switchboard(silent=3), "`silent` should be a list, got 3"),
    (lambda: QueryOnAPlane(3), "`keys` should have 2 axes"),
    (lambda: QueryOnAPlane([["a", "b"]]), "`keys` should hold numbers"),
    (lambda: QueryOnAPlane(torch.ones(3, 4)), r"1 to 8 points of the plane, .* got \(3, 4\)"),
    (lambda: QueryOnAPlane(torch.ones(9, 2)), "1 to 8 points of the plane"),
    (lambda: QueryOnAPlane(META[0, 0]), "`keys` is on the meta device"),
    (lambda: QueryOnAPlane([[1, 2]], [[1, 2], [3, 4]]), "one for each of 1 keys, got 2"),
    (lambda: QueryOnAPlane(values=[[1, 2]]), "`values` belongs to `keys`"),
    (lambda: QueryOnAPlane(names=["x"]), "`names` belongs to `keys`"),
    (lambda: QueryOnAPlane([[1, 2]], preset="four keys"), "give `preset` or `keys`, not both"),
    (lambda: QueryOnAPlane(preset="four key"), "there is no preset 'four key'; did you mean"),
    (lambda: QueryOnAPlane([[1, 2]], names=["x", "y"]), "`names` should be 1 different names"),
    (lambda: QueryOnAPlane([[1, 2]], names=[3]), "`names` should hold texts, got 3"),
    (lambda: QueryOnAPlane([[1, 2]], names=3), "`names` should be a list, got 3"),
    (lambda: QueryOnAPlane([[1, 1e3]]), "`keys` has coordinates beyond ±100"),
    (lambda: QueryOnAPlane(query=[1, 2, 3]), "`query` should be two coordinates, got 3"),
    (lambda: QueryOnAPlane(scale="1"), "`scale` should be a finite number, got '1'"),
    (lambda: QueryOnAPlane(scale=-1), "`scale` should be above 0 and at most 100, got -1"),
    (lambda: QueryOnAPlane(masked=1), "`masked` should be a list, got 1"),
    (lambda: QueryOnAPlane(masked=[4]), "`masked` holds keys 0 … 3, got"),
    (lambda: QueryOnAPlane(shows="all"), "there is no view for `shows` 'all'; known: scores"),
    (lambda: TreeExplorer(3), "`tree` should be bracketed text, a Tree or nested lists"),
    (lambda: TreeExplorer("dog"), "needs at least one phrase: write .NP dog."),
    (lambda: TreeExplorer(["S"]), "the node 'S' has no children"),
    (lambda: TreeExplorer(tokens="ab"), "`tokens` should be a list, got 'ab'"),
    (lambda: TreeExplorer(tokens=TOKENS[:3]), "name each of the 5 leaves, got 3"),
    (lambda: TreeExplorer(weights=2), "`weights` should be a list, got 2"),
    (lambda: TreeExplorer(weights=["a"] * 5), "`weights` should be a finite number, got 'a'"),
    (lambda: TreeExplorer(leaf_values=[1]), "a number for each of the 5 words, got 1"),
    (lambda: TreeExplorer(attention=MAPS), "`attention` should name weights"),
    (lambda: TreeExplorer(attention={"a": SPARSE}), "has layout torch.sparse_coo"),
    (lambda: TreeExplorer(attention={"a": META}), "is on the meta device"),
    (lambda: TreeExplorer(step="mean"), "no step 'mean'"),
    (lambda: TreeExplorer(step="attention"), "only where attention was recorded"),
    (lambda: AttentionExplorer(steps=10**9), "`steps` should be 1 to 5000 steps"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_bad_argument_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


@pytest.mark.parametrize("heads", [[1.5], ["a"], [[0, "1"]], [[0.5, 1]], [(0, 1, 2)], [[0, 9]]])
def test_pairs_that_are_no_heads_are_refused(heads):
    with pytest.raises(traitlets.TraitError, match=r"pairs \[layer, head\]"):
        AttentionView(MAPS).heads = heads


@pytest.mark.parametrize("name", ["theme", "shown", "sort"])
def test_an_array_in_place_of_a_word_is_refused(name):
    with pytest.raises(traitlets.TraitError, match=f"'{name}' trait"):
        setattr(AttentionView(MAPS), name, np.ones(3))


@pytest.mark.parametrize("name", attnlab_widgets.__all__)
def test_what_was_refused_is_closed_in_silence(name):
    """ipywidgets closes what is thrown away, also where the arguments were refused halfway."""
    widget = getattr(attnlab_widgets, name)
    if isinstance(widget, type):
        widget.__new__(widget).close()
