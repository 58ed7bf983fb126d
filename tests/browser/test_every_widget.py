"""What holds of every widget, asked of an example of each: as a saved file, and in JupyterLab.

Stories of one widget stand in a file of its own. Whoever adds a widget adds an example of it to
its folder, and all of this is asked of it.
"""

import json
from typing import Any

import pytest

from tests.widgets.examples import EXAMPLES, HOSTILE, HOSTILE_EXAMPLES, PAGES

pytestmark = pytest.mark.browser

TALL = {"CompressionLab": 960, "TreeExplorer": 1300, "QueryKeySpace": 1300, "QueryOnAPlane": 960}
"""Pixels that a widget may be high at 700 across; others 900."""
OPENED = {"QueryKeySpace": "head-0-0", "TreeExplorer": "step-aggregation"}
"""What is clicked first in a widget whose map or sliders come with a choice."""
ALL = {kind.__name__: make for kind, make in EXAMPLES.items()}
NAMES = [kind.__name__ for kind in PAGES]
HOSTILE_NAMES = [kind.__name__ for kind in HOSTILE_EXAMPLES]
MADE = """
import json
from tests.widgets.examples import EXAMPLES
from attnlab_widgets.base import own_names
made = {}

def make(name):
    made[name] = {kind.__name__: build for kind, build in EXAMPLES.items()}[name]()
    return made[name]

def state(name):
    names = [each for each in own_names(made[name].keys) if not each.startswith("_")]
    print(json.dumps({each: getattr(made[name], each) for each in names}, default=list))
"""

# ------------------------------------------------------------------------------------ a saved file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module", params=NAMES)
def widget(request: pytest.FixtureRequest, folder: Any, tabs: Any) -> Any:
    """The example of a widget as a file, in a tab without a network; one tab for all its tests."""
    path = ALL[request.param]().save_html(folder / f"{request.param}.html")
    page = tabs.open(offline=True)
    page.set_viewport_size({"width": 1025, "height": 760})
    yield drawn(page, path)
    page.close()


def drawn(page: Any, path: Any) -> Any:
    page.goto(path.as_uri())
    found = page.locator(".attnlab-view").first
    found.and_(page.locator("[data-drawn]")).wait_for()
    return found


ASKED = """() => performance.getEntriesByType('resource').map(entry => entry.name)
  .filter(name => !/^(blob|data):/.test(name))"""
PICTURE = """root => [...root.querySelectorAll('canvas, svg, table')].filter(node => {
  const {width, height} = node.getBoundingClientRect();
  if (width < 20 || height < 20) return false;
  if (node.matches('svg')) return node.querySelectorAll('*').length > 2;
  if (node.matches('table')) return node.querySelectorAll('td').length > 2;
  const pixels = node.getContext('2d')?.getImageData(0, 0, node.width, node.height).data;
  return !pixels || new Set(new Uint32Array(pixels.buffer)).size > 1;
}).length"""


def test_it_is_drawn_and_asks_for_nothing(widget: Any, soon: Any) -> None:
    soon(lambda: widget.evaluate(PICTURE), lambda count: count > 0)
    assert widget.page.evaluate(ASKED) == []


def test_it_fits(request: Any, widget: Any, soon: Any, overlapping: Any) -> None:
    name = request.node.callspec.params["widget"]
    for wide, most in ((1408, 760), (700, TALL.get(name, 900)), (993, 760)):
        widget.page.set_viewport_size({"width": wide + 32, "height": 760})
        soon(lambda wide=wide: widget.bounding_box()["width"], wide)
        soon(lambda: widget.bounding_box()["height"], lambda high, most=most: high <= most)
        across = "document.documentElement.scrollWidth"
        soon(
            lambda across=across: widget.page.evaluate(across), lambda w, wide=wide: w <= wide + 32
        )
        assert overlapping(widget) == []


INK = """root => {
  const parts = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, at) => sum + x * [0.2126, 0.7152, 0.0722][at], 0);
  const look = getComputedStyle(root);
  const [ink, paper] = [light(parts(look.color)), light(parts(look.backgroundColor))];
  const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  return [root.dataset.theme, paper < ink ? 'dark' : 'light', contrast > 7];
}"""


def test_it_is_light_and_dark_as_the_reader_s_system(widget: Any, soon: Any) -> None:
    for scheme in ("dark", "light"):
        widget.page.emulate_media(color_scheme=scheme)
        soon(lambda: widget.evaluate(INK), [scheme, scheme, True])
        soon(lambda: widget.evaluate(PICTURE), lambda count: count > 0)


NAMELESS = """root => {
  const shown = node => node.checkVisibility() && node.getBoundingClientRect().width > 0;
  const text = id => root.ownerDocument.getElementById(id)?.textContent ?? '';
  const name = node => [node.getAttribute('aria-label'), node.title,
    (node.getAttribute('aria-labelledby') ?? '').split(' ').map(text).join(''),
    [...(node.labels ?? [])].map(label => label.textContent).join(''),
    node.getAttribute('alt'), node.querySelector(':scope > title')?.textContent,
    node.matches('button, summary, a, [role=option], [role=treeitem], [role=gridcell], td, th, li')
      && node.textContent].some(words => words && words.trim());
  const near = 'button, label, [role=img][aria-label], [role=option], [role=gridcell],'
    + '[role=switch], [tabindex][aria-label], [role=group][aria-label], [role=slider],'
    + 'figure[aria-label]';
  const told = node => node.closest('[aria-hidden=true]')
    || ![null, root].includes(node.parentElement.closest(near));
  const controls = [...root.querySelectorAll(
    'button, select, input, textarea, summary, a[href], [tabindex="0"], [role=slider]')];
  const pictures = [...root.querySelectorAll('canvas, img, svg')]
    .filter(node => !node.parentElement.closest('svg') && !told(node));
  return [...new Set([...controls, ...pictures])].filter(shown).filter(node => !name(node))
    .filter(node => !node.closest('[aria-hidden=true]'))
    .map(node => node.outerHTML.slice(0, 120));
}"""


def test_every_picture_and_control_has_words_for_who_cannot_see_it(widget: Any) -> None:
    assert widget.evaluate(NAMELESS) == []


STOPS = """root => {
  const all = [...root.querySelectorAll(
    'button, select, input, textarea, summary, a[href], [tabindex]')];
  const reached = node => node.tabIndex >= 0 && !node.disabled && node.checkVisibility({
    visibilityProperty: true}) && node.getClientRects().length;
  const radio = node => node.type === 'radio' && !node.checked
    && all.some(other => other.name === node.name && other.checked);
  window.stops = all.filter(node => reached(node) && !radio(node));
  return window.stops.length;
}"""
AT = """() => {
  const now = document.activeElement, look = getComputedStyle(now);
  const inner = now.querySelector?.('*');
  const ring = node => node && (({outlineStyle, boxShadow}) =>
    outlineStyle !== 'none' || boxShadow !== 'none')(getComputedStyle(node));
  const seen = now.matches(':focus-visible') && (ring(now)
    || [...now.querySelectorAll('*')].some(ring) || now.closest('svg') !== null);
  return [window.stops.indexOf(now), Boolean(seen), now.outerHTML.slice(0, 120)];
}"""


def test_tab_goes_through_all_controls_in_their_order(widget: Any) -> None:
    page = widget.page
    page.evaluate("() => { document.activeElement.blur(); getSelection().removeAllRanges(); }")
    count = widget.evaluate(STOPS)
    assert count > 0
    page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
    for wanted in range(count):
        page.keyboard.press("Tab")
        at, seen, what = page.evaluate(AT)
        assert at == wanted, what
        assert seen, f"{what} has no ring when it has the focus"
    page.evaluate(
        "() => { document.activeElement.blur(); document.body.removeAttribute('tabindex'); }"
    )


MOVED = """() => [document.activeElement.outerHTML, document.activeElement.dataset.testid,
  document.querySelector('.attnlab-view').innerText,
  [...document.querySelectorAll('.attnlab-view canvas')].map(canvas => {
    const place = canvas.getBoundingClientRect();
    return [place.x, place.y, canvas.toDataURL().length].join();
  }).join(), document.querySelector('.attnlab-view').innerHTML].join('|')"""
OWN_STOPS = """() => window.stops.filter(node => !node.matches(
  'button, select, input, textarea, summary, a, [role=tooltip], .av-scroll')
  && !(node.scrollHeight > node.clientHeight + 1 && node.matches('[role=region]'))).length"""
FOCUS_OWN = """at => window.stops.filter(node => !node.matches(
  'button, select, input, textarea, summary, a, [role=tooltip], .av-scroll')
  && !(node.scrollHeight > node.clientHeight + 1 && node.matches('[role=region]')))[at].focus()"""


def test_arrow_keys_move_within_what_is_no_button_or_field(request: Any, widget: Any) -> None:
    """A map, a plane or a list of tokens is one stop of Tab; arrow keys go through it."""
    page, name = widget.page, request.node.callspec.params["widget"]
    if name in OPENED:
        widget.get_by_test_id(OPENED[name]).click()
    widget.evaluate(STOPS)
    for at in range(page.evaluate(OWN_STOPS)):
        page.evaluate(FOCUS_OWN, at)
        before = page.evaluate(MOVED)
        for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
            page.keyboard.press(key)
            page.evaluate("() => new Promise(done => requestAnimationFrame(done))")
            if page.evaluate(MOVED) != before:
                break
        else:
            pytest.fail(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))


SHOWN_AS = """root => [root.innerText, ...[...root.querySelectorAll(
    'svg text, option, [aria-label], [title]')].flatMap(node =>
  [node.textContent, node.getAttribute('aria-label') ?? ''])].join(' ')"""


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_words_are_shown_as_text(page: Any, tmp_path: Any, soon: Any, name: str) -> None:
    made = {kind.__name__: make for kind, make in HOSTILE_EXAMPLES.items()}[name](HOSTILE)
    title = "<script>document.title = 'taken'</script>"
    root = drawn(page, made.save_html(tmp_path / "hostile.html", title=title))
    assert page.title() == title
    assert root.locator("script, img[src=x], iframe, object").count() == 0
    soon(lambda: root.evaluate(SHOWN_AS), lambda words: "<img" in words or "<ima" in words)
    shown = root.evaluate(SHOWN_AS)
    assert not set("\x07\x1b\u202e\u200b") & set(shown), "control characters have signs"


# --------------------------------------------------------------------------------------- JupyterLab


@pytest.fixture(scope="module")
def notebook(opened: Any) -> Any:
    cells = [MADE, *(f"make({name!r})" for name in ALL), "state('AttentionView')"]
    notebook = opened("every_widget.ipynb", cells)
    notebook.run_all(600)
    return notebook


def in_cell(notebook: Any, name: str) -> Any:
    return notebook.output(1 + [*ALL].index(name)).locator(".attnlab-view").first


def test_a_notebook_shows_them_light_and_dark(notebook: Any, soon: Any) -> None:
    for theme in ("light", "dark"):
        if theme == "dark":
            notebook._theme("Dark")
        for name in ALL:
            found = in_cell(notebook, name)
            found.and_(notebook.page.locator("[data-drawn]")).wait_for()
            soon(lambda found=found: found.evaluate(INK), [theme, theme, True])
            soon(lambda found=found: found.evaluate(PICTURE), lambda count: count > 0)
    notebook._theme("Light")


CHANGE = """root => {
  const shown = node => node.checkVisibility() && !node.disabled;
  const fire = node => ['input', 'change'].forEach(kind =>
    node.dispatchEvent(new Event(kind, {bubbles: true})));
  const all = ['input[type=range]', 'input[type=checkbox]', 'select']  // a preset changes several
    .flatMap(kind => [...root.querySelectorAll(kind)])
    .filter(shown).filter(node => !node.matches('select') || node.options.length > 1);
  const node = all[0];
  if (!node) return null;
  window.changed = node;
  const before = node.type === 'checkbox' ? node.checked : node.value;
  if (node.matches('select')) {
    const options = [...node.options].filter(option => !option.disabled);
    node.value = options.find(option => option.value !== node.value && option.value !== '').value;
  } else if (node.type === 'checkbox') node.checked = !node.checked;
  else node.value = Number(node.value) < Number(node.max) ? node.max : node.min;
  fire(node);
  return before;
}"""
NOW = "() => window.changed.type === 'checkbox' ? window.changed.checked : window.changed.value"


@pytest.mark.parametrize("name", NAMES)
def test_python_hears_of_a_change_and_takes_it_back(notebook: Any, soon: Any, name: str) -> None:
    found, last = in_cell(notebook, name), 1 + len(ALL)
    if name in OPENED:
        found.get_by_test_id(OPENED[name]).click()
        soon(lambda: found.locator("input[type=range]").count() > 0, True)
    notebook.write(last, f"state({name!r})")
    before = json.loads(notebook.run(last))
    shown = found.evaluate(CHANGE)
    assert shown is not None, "a widget has a select, a slider or a checkbox"
    # A page may tell of a change in two messages: until Python says the same twice.
    after = soon(
        lambda: [json.loads(notebook.run(last)) for _ in range(2)],
        lambda two: two[0] == two[1] != before,
    )[0]
    changed = {each: before[each] for each in before if after[each] != before[each]}
    code = f"for each, value in json.loads({json.dumps(changed)!r}).items():\n"
    notebook.write(last, f"{code}    setattr(made[{name!r}], each, value)\nstate({name!r})")
    assert json.loads(notebook.run(last)) == before
    soon(lambda: notebook.page.evaluate(NOW), shown)
