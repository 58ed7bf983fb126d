"""AttentionView as a saved page: it fits its place, reads its choice aloud, explains a weight."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attnlab_widgets.attention_view import AttentionView
from torch import Tensor, nn

import attnlab

pytestmark = pytest.mark.browser

LAYERS, HEADS, N = 4, 4, 33
TEXT = "␣a ␣bc ␣def ␣ghij ␣of ␣the ␣class ␣name ␣object ␣function"
WORDS = TEXT.split()
MARGIN = 16  # of a saved page


@pytest.fixture(scope="module")
def seen() -> Any:
    """A causal model of random weights, sharp enough to have strongest keys."""
    torch.manual_seed(2)
    model = attnlab.TinyTransformer(N, dim=64, layers=LAYERS, heads=HEADS)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "query" in name or "key" in name:
                weight.mul_(6)
    with attnlab.watch(model) as seen, torch.no_grad():
        model(torch.arange(N)[None])
    return seen


def tokens(n: int = N) -> list[str]:
    return [WORDS[i % len(WORDS)] for i in range(n)]


def sharp(n: int, m: int | None = None, heads: int = 2) -> np.ndarray:
    chance = torch.Generator().manual_seed(5)
    return (4 * torch.randn(1, heads, n, m or n, generator=chance)).softmax(-1).numpy()


def opened(page: Any, view: AttentionView, folder: Path, wide: int = 993) -> Any:
    page.set_viewport_size({"width": wide + 2 * MARGIN, "height": 760 + 2 * MARGIN})
    page.goto(view.save_html(folder / "view.html").as_uri())
    shown = page.get_by_test_id("attention-view")
    shown.locator("xpath=self::*[@data-drawn]").wait_for()
    shown.evaluate(FRAME)
    return shown


FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


# ------------------------------------------------------------------------------------- it fits


@pytest.mark.parametrize("wide", [993, 1408])
@pytest.mark.parametrize("count", [N, 197])
def test_three_columns_fit_a_cell_of_a_laptop(page, seen, tmp_path, wide, count, expect):
    source = seen if count == N else sharp(count, heads=12)
    shown = opened(page, AttentionView(source, tokens(count)), tmp_path, wide)
    box = shown.bounding_box()
    assert (box["width"], box["height"] <= 760) == (wide, True), box
    tops = {round(panel["y"]) for panel in boxes(shown, ".av-panel")}
    assert len(tops) == 1
    apart(shown)
    shown.get_by_test_id("why").evaluate("one => one.scrollIntoView()")
    expect(shown.get_by_text("Shift- or Ctrl-click adds a head to the lines.")).to_be_visible()


@pytest.mark.parametrize("count", [N, 197])
def test_nothing_overlaps_in_a_narrow_place(page, seen, tmp_path, count):
    source = seen if count == N else sharp(count, heads=12)
    shown = opened(page, AttentionView(source, tokens(count)), tmp_path, 700)
    apart(shown)
    assert shown.bounding_box()["width"] == 700
    assert shown.evaluate("view => view.scrollWidth <= view.clientWidth")


def boxes(shown: Any, what: str) -> list[dict[str, float]]:
    return shown.locator(what).evaluate_all(
        "all => all.filter(one => one.checkVisibility())"
        ".map(one => one.getBoundingClientRect().toJSON())"
    )


def apart(shown: Any) -> None:
    """No panel, no part of the bar and no column of tokens lies over its neighbour."""
    for what in (".av-panel", ".av-bar > *", ".av-column", ".av-reading-row > *", ".av-head"):
        found = boxes(shown, what)
        assert found, what
        for at, one in enumerate(found):
            for other in found[at + 1 :]:
                across = min(one["right"], other["right"]) - max(one["left"], other["left"])
                down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
                assert across < 1 or down < 1, (what, one, other)
    for panel in boxes(shown, ".av-column-query"):
        keys = boxes(shown, ".av-column-key")[0]
        assert keys["left"] - panel["right"] >= 40


def test_maps_of_heads_grow_into_free_space(page, seen, tmp_path):
    sides = []
    for wide in (993, 1408):
        shown = opened(page, AttentionView(seen, tokens()), tmp_path, wide)
        sides.append(shown.get_by_test_id("head-0-0").bounding_box()["width"])
    assert 50 < sides[0] < 84 < sides[1]


# --------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize("count", [N, 197, 1024])
def test_the_strongest_key_is_always_labelled(page, tmp_path, count, soon):
    maps = sharp(count)
    shown = opened(page, AttentionView(maps, tokens(count)), tmp_path)
    frame = shown.get_by_test_id("lines").bounding_box()
    shown.get_by_test_id("matrix").focus()
    page.keyboard.press("ArrowDown")
    for query in range(0, 41, 10):
        label = shown.get_by_test_id(f"key-{maps[0, 0, query].argmax()}")
        soon(lambda label=label: label.locator(".av-token-weight").text_content(), bool)
        for one in (label, shown.get_by_test_id(f"query-{query}")):
            box = one.bounding_box()
            assert frame["y"] - 1 <= box["y"]
            assert box["y"] + box["height"] <= frame["y"] + frame["height"] + 1
            assert one.evaluate("one => getComputedStyle(one).opacity") == "1"
        if query < 30:
            page.keyboard.press("PageDown")
        else:
            break


def test_walking_in_the_matrix_scrolls_the_lines_and_far_keys_are_at_the_edge(page, tmp_path, soon):
    maps = sharp(1024)
    query = next(i for i in range(900, 1024) if maps[0, 0, i].argmax() < 300)
    view = AttentionView(maps, tokens(1024))
    shown = opened(page, view, tmp_path)
    assert shown.get_by_test_id("lines").evaluate("one => one.scrollTop") == 0
    shown.get_by_test_id("search").fill(str(query))
    key = shown.get_by_test_id(f"key-{maps[0, 0, query].argmax()}")
    soon(lambda: key.locator(".av-token-number").text_content(), lambda text: text.startswith("↑"))
    assert shown.get_by_test_id("lines").evaluate("one => one.scrollTop") > 1000
    assert shown.get_by_test_id(f"query-{query}").evaluate(SEEN)


SEEN = """one => {
  const [box, frame] = [one, one.closest('.av-scroll')].map(x => x.getBoundingClientRect());
  return box.top >= frame.top && box.bottom <= frame.bottom;
}"""


def test_pointing_between_the_labels_of_a_long_input(page, tmp_path, expect):
    shown = opened(page, AttentionView(sharp(197), tokens(197)), tmp_path)
    box = shown.get_by_test_id("queries").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] * (123.5 / 197))
    expect(shown.get_by_test_id("query-123")).to_have_class(re.compile("av-own"))
    page.mouse.click(box["x"] + 20, box["y"] + box["height"] * (123.5 / 197))
    expect(shown.get_by_test_id("query-123")).to_have_attribute("aria-selected", "true")


# ------------------------------------------------------------------------------------ the strip


def said(weight: float) -> str:
    return "<0.01" if 0 < weight < 0.005 else f"{weight:.2f}"


def test_a_word_lights_the_words_that_it_attends_to(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path)
    weights = seen[1].weights[0, 2].numpy()
    shown.get_by_test_id("head-1-2").click()
    shown.get_by_test_id("word-20").hover()
    expect(shown.get_by_test_id("word-20")).to_have_class(re.compile("av-own-word"))
    strongest = np.argsort(-weights[20])
    for j in [j for j in strongest if weights[20, j] > 0.05 * weights[20].max()]:
        word = shown.get_by_test_id(f"word-{j}")
        if j != 20:
            expect(word).to_have_class(re.compile("av-lit"))
            expect(word).to_have_attribute("title", said(weights[20, j]))
    expect(shown.get_by_test_id("word-21")).to_have_class(re.compile("av-masked"))
    reading = shown.get_by_test_id("reading")
    one, best = (tokens()[i][1:] for i in (20, strongest[0]))
    weight = said(weights[20, strongest[0]])
    expect(reading).to_contain_text(f"layer 1, head 2: {one} attends to {best} {weight}")
    expect(reading).to_have_attribute("aria-live", "polite")


def test_on_a_phone_the_answer_is_whole(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path, wide=358)
    shown.get_by_test_id("word-20").click()
    reading = shown.get_by_test_id("reading")
    expect(reading).to_contain_text("attends to")
    assert reading.evaluate("node => node.scrollHeight <= node.clientHeight")


def test_the_other_way_round_and_pinned(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path)
    weights = seen[0].weights[0, 0].numpy()
    shown.get_by_test_id("way-by").click()
    word = shown.get_by_test_id("word-3")
    word.click()
    page.mouse.move(0, 0)
    best = weights[:, 3].argmax()
    expect(shown.get_by_test_id("reading")).to_contain_text(
        f"is attended to by {tokens()[best][1:]} {said(weights[best, 3])}"
    )
    expect(shown.get_by_test_id("word-2")).to_have_class(re.compile("av-masked"))
    expect(word).to_have_attribute("aria-selected", "true")
    expect(shown.get_by_test_id("key-3")).to_have_attribute("aria-selected", "true")
    shown.get_by_test_id("way-to").click()
    expect(shown.get_by_test_id("query-3")).to_have_attribute("aria-selected", "true")


def test_walking_over_words_with_the_keyboard(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path)
    shown.get_by_test_id("word-0").focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(shown.get_by_test_id("word-2")).to_be_focused()
    expect(shown.get_by_test_id("query-2")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(shown.get_by_test_id("query-2")).to_have_attribute("aria-selected", "false")


def test_a_token_or_a_position_is_found(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path)
    search = shown.get_by_test_id("search")
    search.fill("class")
    expect(shown.get_by_test_id("matches")).to_have_text("1 of 3")
    expect(shown.get_by_test_id("word-6")).to_have_class(re.compile("av-own-word"))
    search.press("Enter")
    search.press("Enter")
    expect(shown.get_by_test_id("matches")).to_have_text("2 of 3")
    expect(shown.get_by_test_id("query-16")).to_have_attribute("aria-selected", "true")
    search.fill("29")
    expect(shown.get_by_test_id("word-29")).to_have_class(re.compile("av-own-word"))
    search.fill("nowhere")
    expect(shown.get_by_test_id("matches")).to_have_text("not found")


def test_two_texts_have_a_line_each(page, tmp_path, expect):
    maps = sharp(5, 11)
    view = AttentionView(maps, list("vwxyz"), source_tokens=list("abcdefghijk"))
    shown = opened(page, view, tmp_path)
    shown.get_by_test_id("query-word-3").hover()
    best = maps[0, 0, 3].argmax()
    expect(shown.get_by_test_id(f"key-word-{best}")).to_have_class(re.compile("av-lit"))
    expect(shown.get_by_test_id("way-to")).to_be_hidden()
    shown.get_by_test_id("key-word-7").hover()
    expect(shown.get_by_test_id("reading")).to_contain_text("h is attended to by")


# --------------------------------------------------------------------------------------- masked


def test_masked_pairs_are_hatched_and_zero_weights_are_not(page, tmp_path, expect):
    class Banded(nn.Module):
        def forward(self, q: Tensor, mask: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    q = 9 * torch.eye(8)[None, None]  # every query attends to itself alone
    mask = torch.ones(8, 8, dtype=torch.bool).tril().triu(-3)
    with attnlab.watch(model := Banded()) as seen:
        model(q, mask)
    shown = opened(page, AttentionView(seen, list("abcdefgh")), tmp_path)
    matrix, readout = shown.get_by_test_id("matrix"), shown.get_by_test_id("readout")
    matrix.focus()
    page.keyboard.press("ArrowDown")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    expect(readout).to_contain_text("masked: it may not attend there")
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("key 1 “b”: 0")
    for canvas, box in ((".av-matrix canvas", None), (".av-heads-frame canvas", ".av-head-map")):
        hidden, zero, own = (
            page.evaluate(COLOURS, [canvas, box, i, j]) for i, j in ((2, 6), (6, 4), (5, 5))
        )
        assert len(hidden) > 2, "lines on a ground"
        assert zero == [[0, 34, 78]], zero
        assert own == [[254, 232, 56]], own
    shown.get_by_test_id("query-2").hover()
    expect(shown.get_by_test_id("word-6")).to_have_class(re.compile("av-masked"))
    expect(shown.get_by_test_id("scale")).to_contain_text("masked")


# Colours within a cell of an 8 × 8 map, away from its border.
COLOURS = """([name, within, i, j]) => {
  const canvas = document.querySelector(name);
  const context = canvas.getContext('2d');
  const ratio = window.devicePixelRatio;
  let [x, y, wide, high] = [0, 0, 0, 0];
  if (within) {
    const both = [canvas, document.querySelector(within)];
    const [sheet, map] = both.map(x => x.getBoundingClientRect());
    [x, y, wide, high] = [map.left - sheet.left, map.top - sheet.top, map.width, map.height];
  } else {
    const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
    const bright = (at) => data[at] === 254 && data[at + 1] === 232;
    const found = [...data.keys()].filter(at => at % 4 === 0 && bright(at)).map(at => at / 4);
    const place = at => [at % canvas.width, Math.floor(at / canvas.width)];
    const [first, last] = [place(found[0]), place(found.at(-1))];
    [x, y, wide, high] = [...first, last[0] + 1 - first[0], last[1] + 1 - first[1]];
    [x, y, wide, high] = [x, y, wide, high].map(one => one / ratio);
  }
  const seen = new Set();
  for (let a = 0.25; a < 0.8; a += 0.05) for (let b = 0.25; b < 0.8; b += 0.05) {
    const [left, top] = [x + (j + a) / 8 * wide, y + (i + b) / 8 * high];
    const {data} = context.getImageData(left * ratio, top * ratio, 1, 1);
    seen.add(JSON.stringify([...data.slice(0, 3)]));
  }
  return [...seen].map(JSON.parse);
}"""


# ---------------------------------------------------------------------------------- step by step


def numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+\.?\d*", text.replace("−", "-"))]


def test_the_steps_say_what_was_recorded(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path)
    record = seen[2]
    weights, q, k = record.weights[0, 1], record.queries[0, 1], record.keys[0, 1]
    shown.get_by_test_id("head-2-1").click()
    expect(shown.get_by_test_id("why")).to_be_disabled()
    shown.get_by_test_id("word-17").click()
    shown.get_by_test_id("why").click()
    message, panel = shown.get_by_test_id("why-said"), shown.get_by_test_id("why-panel")
    expect(shown.get_by_test_id("matrix")).to_be_hidden()
    best = int(weights[17].argmax())
    products = q[17] * k[best]
    expect(message).to_contain_text("16 numbers each")
    assert abs(numbers(message.inner_text())[-1] - products[products.abs().argmax()]) < 0.02
    shown.get_by_test_id("why-next").click()
    expect(message).to_contain_text("1/√16")
    said_sum, *_, score = numbers(message.inner_text().split("sum to")[1])
    assert abs(said_sum - products.sum()) < 0.02 * (1 + abs(float(products.sum())))
    assert abs(score - products.sum() / 4) < 0.02 * (1 + abs(float(products.sum() / 4)))
    page.keyboard.press("ArrowRight")
    expect(message).to_contain_text(f"The mask hides {N - 18} of {N} keys")
    shown.get_by_test_id("step-4").click()
    assert abs(numbers(message.inner_text())[-1] - weights[17, best]) < 0.006
    row = shown.get_by_test_id(f"why-key-{best}").inner_text()
    assert abs(numbers(row)[-1] - weights[17, best]) < 0.006
    expect(shown.get_by_test_id("why-verdict")).to_contain_text("are the recorded ones")
    shown.get_by_test_id("why-next").click()
    expect(shown.get_by_test_id("why-next")).to_be_disabled()
    expect(panel.get_by_text("output", exact=True)).to_be_visible()
    assert shown.bounding_box()["height"] <= 760
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(shown.get_by_test_id("matrix")).to_be_visible()
    expect(shown.get_by_test_id("why")).to_be_focused()


class Capped(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (2 * (q @ k.mT / 2).tanh()).softmax(-1) @ v


def test_what_the_record_does_not_hold_is_said(page, tmp_path, expect):
    q, k, v = (
        3 * torch.randn(1, 2, 7, 4, generator=torch.Generator().manual_seed(1)) for _ in "qkv"
    )
    with attnlab.watch(model := Capped()) as seen:
        model(q, k, v)
    shown = opened(page, AttentionView(seen), tmp_path)
    shown.get_by_test_id("word-5").click()
    shown.get_by_test_id("why").click()
    verdict = shown.get_by_test_id("why-verdict")
    expect(verdict).to_contain_text("differ from the recorded ones by up to 0.")
    expect(verdict).to_contain_text("tanh")
    shown = opened(page, AttentionView(sharp(7)), tmp_path)
    shown.get_by_test_id("word-5").click()
    shown.get_by_test_id("why").click()
    expect(shown.get_by_test_id("why-said")).to_contain_text("This source holds weights only")
    expect(shown.get_by_test_id("why-next")).to_be_hidden()


def test_the_rounding_is_explained(page, seen, tmp_path, expect):
    shown = opened(page, AttentionView(seen, tokens()), tmp_path)
    shown.get_by_test_id("matrix").focus()
    for key in ("ArrowDown", "PageDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(shown.get_by_test_id("readout")).to_contain_text("±")
    expect(shown.get_by_test_id("readout")).to_have_attribute("title", re.compile("8 bits"))


# ---------------------------------------------------------------------------- who wrote it


def followed(**options: Any) -> AttentionView:
    """A model of random weights, and what it read: the parts of its scores are known."""
    torch.manual_seed(2)
    model = attnlab.TinyTransformer(N, dim=64, layers=3, heads=2, **options)
    view = attnlab.view(model, torch.arange(N)[None])
    view.layer, view.head, view.query = 2, 1, 9
    view.get_state()  # as before it is stored: the parts of the pinned query are computed
    return view


@pytest.mark.parametrize("wide", [993, 390])
def test_who_wrote_the_score_is_shown_for_every_key_of_the_pinned_query(
    page, tmp_path, expect, wide
):
    view = followed()
    values = np.frombuffer(view._origin_data, "<f4").reshape(2, -1, N)
    shown = opened(page, view, tmp_path, wide)
    shown.get_by_test_id("why").click()
    shown.get_by_test_id("step-6").click()
    for key in (3, 7):
        shown.get_by_test_id("step-5").click()
        shown.get_by_test_id(f"why-key-{key}").click()
        shown.get_by_test_id("step-6").click()
        table = shown.get_by_test_id("origins-table")
        expect(table.get_by_role("columnheader", name="read at the key")).to_contain_text(f"{key}")
        rows = table.evaluate(
            "x => [...x.tBodies[0].rows].map(r => [...r.cells].map(c => c.innerText))"
        )
        found = np.array([[float(x.replace("−", "-")) for x in row[1:]] for row in rows])
        np.testing.assert_allclose(found[-1], values[:, :, key].sum(1), atol=0.006)
        np.testing.assert_allclose(found[:-1].sum(0), found[-1], atol=0.06)
        sentence = shown.get_by_test_id("why-said").inner_text()
        said = numbers(sentence.replace("+", ""))
        way = 1 if values[:, :, key].sum(1)[0] >= 0 else -1
        assert f"The largest part that {'raises' if way > 0 else 'lowers'} it is" in sentence
        for best in (way * found[:-1]).max(0):
            assert best < 0.01 or way * best in said
    assert page.evaluate("document.documentElement.scrollWidth") <= wide + 2 * MARGIN


def test_another_query_of_a_saved_page_leads_back_to_the_one_that_is_kept(page, tmp_path, expect):
    shown = opened(page, followed(), tmp_path)
    shown.get_by_test_id("word-12").click()
    shown.get_by_test_id("why").click()
    shown.get_by_test_id("step-6").click()
    expect(shown.get_by_test_id("why-said")).to_contain_text("This page holds those of query 9")
    expect(shown.get_by_test_id("origins-table")).to_have_count(0)
    shown.get_by_test_id("origins-stored").click()
    expect(shown.get_by_test_id("origins-table")).to_have_count(1)
    expect(shown.get_by_test_id("why-panel")).to_contain_text("Why does query 9")
    expect(shown.get_by_test_id("why-panel")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(shown.get_by_test_id("step-5")).to_have_attribute("aria-current", "step")
    page.keyboard.press("Escape")
    expect(shown.get_by_test_id("why-panel")).to_be_hidden()


def test_where_parts_are_not_known_there_is_a_sentence_and_no_step(page, seen, tmp_path, expect):
    shown = opened(page, followed(positions="rotary"), tmp_path)
    shown.get_by_test_id("why").click()
    expect(shown.get_by_test_id("step-6")).to_be_hidden()
    shown.get_by_test_id("step-2").click()
    expect(shown.get_by_test_id("why-verdict")).to_contain_text("rotates queries and keys")
    without = AttentionView(seen)
    without.query = 9
    shown = opened(page, without, tmp_path)
    shown.get_by_test_id("why").click()
    expect(shown.get_by_test_id("step-5")).to_be_visible()
    expect(shown.get_by_test_id("step-6")).to_be_hidden()
