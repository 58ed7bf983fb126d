"""The catalogue finds every page by itself and answers mistypings."""

import subprocess
import sys
from html import escape
from pathlib import Path

import pytest

import attnlab
from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.options import Options


def test_every_page_of_the_shelf_is_found() -> None:
    found = 0
    for name in catalog.SHELVES:
        shelf = Path(attnlab.__file__).parent / name
        texts = [p.read_text(encoding="utf-8") for p in shelf.rglob("*.py")]
        pages = [text for text in texts if "\nCARD = " in text or "\nCARDS = " in text]
        assert len(pages) == len({catalog.pages()[c.name] for c in catalog.shelf(name)})
        assert all((shelf / c.family).is_dir() or c.family == name for c in catalog.shelf(name))
        found += len(catalog.shelf(name))
    assert found == len(attnlab.cards())


def test_a_page_may_hold_several_mechanisms() -> None:
    assert catalog.pages()["brc"] == catalog.pages()["nbrc"]
    assert catalog.module_of(attnlab.card("nbrc")) == "attnlab.mechanisms.recurrence.bistable"


@pytest.mark.parametrize(
    ("alias", "name"), [("flash", "flash"), ("gqa", "multi_query"), ("led", "longformer")]
)
def test_a_mechanism_is_found_by_its_other_names(alias: str, name: str) -> None:
    assert attnlab.card(alias) is attnlab.card(name)


def test_names_are_unique() -> None:
    names = [name for card in attnlab.cards() for name in (card.name, *card.aliases)]
    assert len(names) == len(set(names))


def test_the_table_has_a_part_for_each_role() -> None:
    shelf = attnlab.cards()
    roles = {card.role for card in shelf if not card.causal}
    assert {"feed", "join", "depth", "objective"} <= roles
    page = shelf._repr_html_()
    assert page.count("<caption>") == len(roles)
    assert "Pre-norm<br><code>pre_norm</code></td><td" in page
    assert "√(L/2 + 1/2)" in page


def test_pages_of_other_shelves_are_built_by_name_and_answer_mistypings() -> None:
    assert attnlab.card("pre") is attnlab.card("pre_norm")
    assert attnlab.build("mlp", dim=8, hidden=3).expand.out_features == 3
    for call, words in (
        ({"name": "mpl", "dim": 8}, "no mechanism 'mpl'; did you mean 'mlp'"),
        ({"name": "mlp"}, "mlp needs dim, the width of what it reads"),
        ({"name": "plain", "dim": 8}, "plain has no width; leave dim out"),
        ({"name": "mlp", "dim": 8, "heads": 2}, "mlp has no heads and is not causal"),
        ({"name": "mlp", "dim": 8, "chunk": 2}, "mlp has no option 'chunk'; did you mean 'chunks'"),
        ({"name": "mlp", "dim": 8, "positions": "rope"}, "mlp cannot take rotated queries"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            attnlab.build(**call)
    with pytest.raises(ValueError, match="mlp mixes no positions"):
        attnlab.card("mlp").cost("time")


def test_nearest_name_is_suggested() -> None:
    with pytest.raises(ValueError, match=r"no mechanism 'ful'; did you mean 'full' or 'flash'\?"):
        attnlab.card("ful")
    with pytest.raises(ValueError, match=r"known: .*flash, .*full, .*multi_query"):
        attnlab.card("zzz")
    with pytest.raises(TypeError, match="no option 'kv_head'; did you mean 'kv_heads'"):
        attnlab.build("multi_query", dim=8, heads=2, kv_head=1)
    with pytest.raises(TypeError, match="plain has no option 'args'"):  # of PyTorch's __init__
        attnlab.build("plain", args=3)
    with pytest.raises(TypeError, match="full has no option 'num_heads'; did you mean 'heads'"):
        attnlab.build("full", dim=8, num_heads=2)


def test_names_of_other_libraries_are_known() -> None:
    with pytest.raises(TypeError, match=r"no option 'd_model'; did you mean 'dim'\?"):
        attnlab.TinyTransformer(9, d_model=8)
    with pytest.raises(TypeError, match=r"no option 'lr'; did you mean 'learning_rate'\?"):
        attnlab.train.fit(None, None, 1, lr=0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"no option 'embed_dim'; did you mean 'dim'\?"):
        attnlab.build("full", dim=8, embed_dim=8)


def test_catalogue_shows_in_text_and_notebook() -> None:
    shelf = attnlab.cards()
    text, page = repr(shelf), shelf._repr_html_()
    assert all(card.name in text and escape(card.title) in page for card in shelf)
    assert "<td" in page
    assert "*" not in page, "costs as they are written, not as a program"
    for part in ("Vaswani et al., 2017", "Shazeer, 2019"):
        assert part in page


def test_costs_are_typeset_and_their_letters_explained() -> None:
    page = attnlab.cards()._repr_html_()
    spaced = page.replace("\u202f", " ")
    quadratic = "<i>h</i> <i>n</i><sup>2</sup> (<i>d</i> + <i>e</i>)"
    assert f"<i>O</i>({quadratic})" in spaced
    assert f"<i>O</i>({quadratic}/<i>c</i>)" in spaced
    assert "<i>h</i>: heads; <i>d</i>: width of a head: its queries and keys" in page
    assert "Longformer: <i>w</i>: window: the paper&#x27;s w, half of it to each side" in page
    for card in catalog.shelf():
        form = list(card.forms)[-1]
        found = card.explained([card.order(what, form) for what in ("time", "memory")])
        assert all(found.values()), f"{card.name}: letters without a meaning in {found}"
        assert not any(text.startswith("the option ") for text in found.values()), (
            f"{card.name}: the docstring of {card.options.__name__} explains no {found}"
        )


def test_cards_show_maps_and_links() -> None:
    """Computed floors above the catalogue, which the face brings together."""
    shelf = attnlab.cards()
    page = shelf._repr_html_()
    mixing = [card for card in shelf if card.role in ("attend", "mix", "encode", "bias")]
    for card in mixing:
        assert f'alt="Implied map of {escape(card.title)}"' in page
    assert page.count("data:image/png;base64,") == len(mixing)
    assert "/blob/main/attnlab/mechanisms/fixed/longformer" in page
    assert "/blob/main/notebooks/11_longformer_bigbird_etc.ipynb" in page
    assert 'href="https://arxiv.org/abs/1706.03762"' in page
    longformer = attnlab.card("longformer")._repr_html_()
    assert "Implied map of Longformer" in longformer
    assert "lesson 11" in longformer
    assert "<i>w</i>: window: the paper&#x27;s w" in longformer


def test_maps_of_cards_show_what_is_out_of_reach() -> None:
    from attnlab_widgets import card_maps

    maps = card_maps._maps()
    n = card_maps.LENGTH
    assert maps["full"].isfinite().all()
    assert maps["sparse_transformer"].triu(1)[0, 1:].isnan().all(), "always causal"
    window = attnlab.card("longformer").small_options["window"]
    assert maps["longformer"][0, window // 2 + 1 : n].isnan().all()
    assert maps["longformer"][0, : window // 2 + 1].isfinite().all()


def test_unknown_attribute_names_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"attnlab has no 'attend'; it has .*build"):
        attnlab.attend  # noqa: B018


def test_import_is_light_and_what_needs_an_extra_names_it() -> None:
    """A bare GPU machine has torch, numpy and jaxtyping; the shelf must open there, and help."""
    run = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    cards, *sentences = run.stdout.splitlines()
    assert int(cards) == len(catalog.cards())
    assert "".join(sentences).count("pip install 'attnlab[widgets]'") == 4


BARE = """
import pydoc, sys
absent = ("accelerate", "plotly", "ipywidgets", "anywidget", "tokenizers", "safetensors",
          "traitlets", "bertviz", "IPython", "pytest", "sklearn", "umap", "faiss", "PIL",
          "transformers")
sys.modules.update(dict.fromkeys(absent))
import attnlab
assert "sympy" not in sys.modules
print(len(attnlab.cards()))
attnlab.TinyTransformer, attnlab.watch
import attnlab_widgets
for package in (attnlab, attnlab_widgets):
    told = pydoc.plain(pydoc.render_doc(package))
    assert all(name in told for name in package.__all__)
for call in (attnlab.view, attnlab.wall, attnlab.survey, attnlab_widgets.AttentionView):
    try:
        call()
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("card", [c for c in attnlab.cards() if c.mixes], ids=lambda c: c.name)
def test_each_mixing_card_says_what_it_gives_up(card: Card) -> None:
    assert card.gives_up, "CARD needs gives_up: one short plain sentence, as full attention has"
    assert card.gives_up.endswith(".")
    assert len(card.gives_up) <= 90
    assert card.gives_up == card.gives_up.strip()
    assert ("gives up", card.gives_up) in card.rows()


@pytest.mark.parametrize(
    "card", [c for c in attnlab.cards() if c.small_options], ids=lambda c: c.name
)
def test_options_for_a_short_sentence_are_options(card: Card) -> None:
    assert card.mixes
    causal = card.causal == "always"
    attnlab.build(card.name, dim=16, heads=2, causal=causal, **card.small_options)


def test_tab_offers_public_names_only() -> None:
    rooms = {"": attnlab, "tasks.": attnlab.tasks, "train.": attnlab.train}
    completed = subprocess.run(
        [sys.executable, "-c", COMPLETE, *rooms], capture_output=True, text=True, check=False
    )
    if "No module named 'IPython'" in completed.stderr:
        pytest.skip("what Tab offers in a notebook is asked of IPython: pip install 'attnlab[lab]'")
    offered = completed.stdout.splitlines()
    assert len(offered) == len(rooms), completed.stderr
    for (room, place), names in zip(rooms.items(), offered, strict=True):
        public = sorted([*place.__all__, *([] if room else attnlab._ROOMS)])
        assert sorted(name for name in dir(place) if not name.startswith("_")) == public
        assert sorted(names.split()) == public, room


COMPLETE = """
import sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import attnlab, attnlab.tasks, attnlab.train")
for room in sys.argv[1:]:
    typed = f"attnlab.{room}"
    with provisionalcompleter():
        print(*(found.text for found in shell.Completer.completions(typed, len(typed))))
"""


def test_options_are_named_for_their_page() -> None:
    """<Mechanism>Options, so that nobody has to learn a word for each page."""
    for card in catalog.shelf():
        if card.options is not Options:
            own = card.options.__name__.removesuffix("Options").lower()
            assert own != card.options.__name__.lower(), card.options
            assert own in card.options.__module__.replace("_", ""), card.options
