"""ComplexWordExplorer: what it draws is what the embedding holds; wrong values are refused."""

from pathlib import Path

import pytest
import torch
import traitlets
from attnlab_widgets.complex_words import ComplexWordExplorer

from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab.mechanisms.positions.complex_embedding.tables import ComplexEmbeddingOptions

WORDS = {3: "the", 5: "of", 1: "<b>"}


def embedding(**options: object) -> ComplexEmbedding:
    torch.manual_seed(1)
    return ComplexEmbedding(7, 5, options=ComplexEmbeddingOptions(start="normal", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"phases": "none"}, {"frequencies": "words"}])
def test_arrows_are_the_embedding_s(options: dict[str, str]) -> None:
    words = embedding(**options)
    explorer = ComplexWordExplorer(words, WORDS, positions=11)
    waves = words(torch.tensor([[3], [5], [1]]).expand(3, 11), torch.arange(11)).detach()
    for dimension in range(5):
        explorer.dimension = dimension
        torch.testing.assert_close(explorer.arrows(), waves[:2, :, dimension], rtol=1e-4, atol=1e-3)
    explorer.first, explorer.second = 2, -1
    torch.testing.assert_close(explorer.arrows(), waves[2:, :, 4], rtol=1e-4, atol=1e-3)


def test_trained_beside_initial() -> None:
    before, after = embedding(), embedding(scale=2.0)
    explorer = ComplexWordExplorer(after, WORDS, initial=before)
    trained = explorer.arrows()
    explorer.stage = "initial"
    torch.testing.assert_close(explorer.arrows() * 2, trained, rtol=1e-4, atol=1e-4)
    assert "initial" in explorer.description()
    assert ">trained</text>" in explorer.still().svg("")


def test_it_calls_no_embedding_trained_that_stands_alone() -> None:
    explorer = ComplexWordExplorer(embedding(), WORDS)
    said = explorer.description() + explorer.still().svg("")
    assert "trained" not in said
    assert explorer.stage == "as given"


def test_what_nobody_trained_says_so() -> None:
    assert ">untrained<" in ComplexWordExplorer(embedding(), WORDS, untrained=True).still().svg("")
    beside = ComplexWordExplorer(embedding(scale=2.0), WORDS, initial=embedding())
    assert [beside.is_untrained(stage) for stage in ("trained", "initial")] == [False, True]
    assert beside.still().svg("").count(">untrained<") == 1
    with pytest.raises(ValueError, match="goes with an embedding that has no `initial` one"):
        ComplexWordExplorer(embedding(), WORDS, initial=embedding(), untrained=True)


def test_it_starts_where_two_words_differ() -> None:
    words = embedding()
    with torch.no_grad():
        words.amplitude[:] = 1.0
        words.angles.frequency[3] = words.angles.frequency[5]
        words.angles.frequency[5, 4] += 0.5
    assert ComplexWordExplorer(words, WORDS).dimension == 4


def test_the_still_picture(tmp_path: Path) -> None:
    explorer = ComplexWordExplorer(embedding(), WORDS)
    still = explorer.save_svg(tmp_path / "words.svg").read_text()
    assert still.startswith("<svg")
    assert "“the”, dimension" in still


def test_what_cannot_be_is_said() -> None:
    words = embedding()
    with pytest.raises(TypeError, match="should be a ComplexEmbedding, got Embedding"):
        ComplexWordExplorer(torch.nn.Embedding(3, 2), WORDS)
    with pytest.raises(TypeError, match="a dict from tokens to texts"):
        ComplexWordExplorer(words, ["the"])
    with pytest.raises(ValueError, match="tokens lie in 0 … 6, got 7"):
        ComplexWordExplorer(words, {7: "x"})
    with pytest.raises(TypeError, match="a token should be a whole number"):
        ComplexWordExplorer(words, {"the": "x"})
    with pytest.raises(ValueError, match="at most 64 words"):
        ComplexWordExplorer(ComplexEmbedding(99, 4), dict.fromkeys(range(65), "x"))
    with pytest.raises(ValueError, match="1 to 24 positions"):
        ComplexWordExplorer(words, WORDS, positions=25)
    with pytest.raises(ValueError, match="initial should have vocab=7 and dim=5"):
        ComplexWordExplorer(words, WORDS, initial=ComplexEmbedding(7, 4))
    explorer = ComplexWordExplorer(words, WORDS)
    for name, wrong in (("first", 3), ("first", -1), ("second", -2), ("dimension", 5),
                        ("stage", "initial"), ("positions", 0)):  # fmt: skip
        with pytest.raises(traitlets.TraitError, match=f"{name} should be"):
            setattr(explorer, name, wrong)
