"""What widgets cost in the browser: `make measure-widgets`.

The attention view stands beside bertviz, attnview and CircuitsVis; then the query-key space.

One Chromium, one run, the same weights for both, taken in turns. Files are opened from the disk (a
bertviz file gets its libraries from npm packages, so no network slows it down), and AttentionView
also in JupyterLab. Medians; what is not drawn within the limit is reported as such. Where bertviz
has shown nothing within it, it is not asked for a longer input.

picture   seconds from opening the file, or from running the cell, until the picture is drawn (of
          the query-key space, with every point) and the browser has come to rest for a frame
hover     milliseconds of work of the page's main thread for one token pointed at
click     the same for choosing another head
zoom      the same for one step closer to the matrix
pan       milliseconds from frame to frame while the maps of the query-key space are dragged
requests  to other machines, while the page was opened
file      megabytes of the saved file
python    seconds that writing the file took
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.query_key_space import QueryKeySpace
from attnlab_widgets.query_key_space.example import maps_of, points_of, tokens_of
from conftest import OPTIONS, Notebook, program, serve_cdn, serving, write
from playwright.sync_api import Error, sync_playwright

from attnlab.measure.report import grid, machine, machine_line

CASES = ((12, 12, 128), (1, 2, 512), (1, 2, 1024), (1, 2, 4096))
ALONE = (12, 12, 512)
"""Too large for bertviz, which would write hundreds of megabytes."""
PEER_CASES = ((1, 12, 128), ALONE)
MOST_FILE = 100.0
"""Megabytes that a peer is asked to write at most, by what a smaller case took."""
DRAWN = {
    "AttentionView": "document.querySelector('[data-drawn]')",
    "bertviz head view": "document.querySelector('#attention line')",
    "bertviz model view": "document.querySelector('svg line')",
    "attnview": "document.querySelector('tbody tr')",
    "CircuitsVis": "document.querySelector('body canvas')",
}
PEERS = ("AttentionView", "attnview", "CircuitsVis")
BERTVIZ = ("AttentionView", "bertviz head view", "bertviz model view")
TOKENS = {
    "AttentionView": "[data-testid^='query-']",
    "bertviz head view": "#left text",
    "bertviz model view": "",
    "attnview": "",
    "CircuitsVis": "",
}
HOVERS = 12
HOVERING = 30.0
"""Seconds after which no further token is pointed at."""


def weights_of(layers: int, heads: int, n: int) -> torch.Tensor:
    """(layers, heads, n, n): causal, peaked, as heads are."""
    scores = 2 * torch.randn(layers, heads, n, n, generator=torch.Generator().manual_seed(0))
    blocked = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(blocked, -torch.inf).softmax(-1)


def save(subject: str, weights: torch.Tensor, path: Path) -> None:
    tokens = [f"t{i}" for i in range(weights.shape[-1])]
    if subject == "AttentionView":
        AttentionView(weights.numpy(), tokens).save_html(path)
        return
    if subject == "attnview":
        import attnview

        attnview.export_html(weights.flatten(0, 1), path, tokens=tokens)
        return
    if subject == "CircuitsVis":  # with its script in the page; str() of it asks unpkg.com
        from circuitsvis.attention import attention_heads

        html = attention_heads(weights.flatten(0, 1), tokens).local_src
        path.write_text(f"<!doctype html><meta charset='utf-8'><body>{html}", encoding="utf-8")
        return
    from bertviz import head_view, model_view

    view = head_view if "head" in subject else model_view
    html = view([layer[None] for layer in weights], tokens, html_action="return").data
    path.write_text(f"<!doctype html><body>{html}</body>")


PICTURE = """async DRAWN => {
  while (!eval(DRAWN)) await new Promise(next => setTimeout(next, 4));
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() / 1000;
}"""
FRAME = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


def measured(browser: Any, subject: str, path: Path, seconds: float) -> dict[str, Any]:
    """Opens the file, waits for the picture, points at tokens."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * seconds)
    page = context.new_page()
    serve_cdn(page)
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.url.startswith("http") else None)
    try:
        page.goto(path.as_uri(), wait_until="commit")
        drawn = page.wait_for_function(PICTURE, arg=DRAWN[subject], timeout=1000 * seconds)
        found = {"picture": drawn.json_value(), "requests": len(asked)}
    except Error:
        return {"failed": f"not drawn within {seconds:.0f} s"}
    else:
        with contextlib.suppress(Error):  # drawn, but too slow to be used
            if TOKENS[subject]:
                found["hover"] = hovered(page, TOKENS[subject])
            if subject == "AttentionView":
                found["click"], found["zoom"] = clicked(page), zoomed(page)
        return found
    finally:
        with contextlib.suppress(Exception):
            context.close()


def hovered(page: Any, tokens: str) -> float:
    page.locator(tokens).nth(8).evaluate("one => one.scrollIntoView({block: 'center'})")
    boxes = page.locator(tokens).evaluate_all(
        "all => all.slice(0, 40).map(one => one.getBoundingClientRect().toJSON())"
    )
    inside = [box for box in boxes if box["height"] and 0 < box["y"] < 850][:HOVERS]
    points = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in inside]
    return worked(page, [lambda x=x, y=y: page.mouse.move(x, y) for x, y in points])


def clicked(page: Any) -> float:
    heads = [page.get_by_test_id(f"head-0-{head}") for head in (1, 0)]
    heads[0].scroll_into_view_if_needed()
    return worked(page, [head.click for head in heads * 3])


def zoomed(page: Any) -> float:
    closer = page.get_by_label("Zoom in", exact=True)
    closer.scroll_into_view_if_needed()
    return worked(page, [closer.click] * 5)


def worked(page: Any, acts: Sequence[Callable[[], Any]]) -> float:
    """Milliseconds of work of the page's main thread for one of the acts, until it rests."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.evaluate(FRAME)
    before, start, done = busy(session), time.monotonic(), 0
    for act in acts:
        act()
        page.evaluate(FRAME)
        done += 1
        if time.monotonic() - start > HOVERING:
            break
    return 1000 * (busy(session) - before) / done


def busy(session: Any) -> float:
    """Seconds that the page's main thread has worked."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def compared(browser: Any, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    subjects = list(BERTVIZ)
    for layers, heads, n in CASES[:1] if options.quick else CASES:
        weights = weights_of(layers, heads, n)
        rows: dict[str, dict[str, Any]] = {}
        for subject in subjects:
            path = folder / f"{subject}-{n}.html".replace(" ", "-")
            start = time.perf_counter()
            save(subject, weights, path)
            rows[subject] = {
                "subject": f"{subject}, file",
                "case": f"{layers} × {heads} × {n}",
                "python": time.perf_counter() - start,
                "file": path.stat().st_size / 1e6,
            }
        runs: dict[str, list[dict[str, Any]]] = {subject: [] for subject in subjects}
        for _ in range(options.repeats):
            for subject in subjects:
                if not any("failed" in run for run in runs[subject]):
                    path = folder / f"{subject}-{n}.html".replace(" ", "-")
                    runs[subject].append(measured(browser, subject, path, options.limit))
        for subject, row in rows.items():
            yield row | middle(runs[subject])
        subjects = [subject for subject in subjects if not middle(runs[subject]).get("failed")]


def beside_peers(
    browser: Any, folder: Path, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The first case of each, and the large one where its file would not be too large."""
    for subject in PEERS:
        per_weight = 0.0
        for layers, heads, n in PEER_CASES:
            row: dict[str, Any] = {
                "subject": f"{subject}, page",
                "case": f"{layers} × {heads} × {n}",
            }
            size = per_weight * layers * heads * n * n
            if size > MOST_FILE and subject != "AttentionView":
                yield row | {"failed": f"not asked: its file would be {size:.0f} MB"}
                continue
            path = folder / f"beside-{subject}-{n}.html"
            start = time.perf_counter()
            try:
                save(subject, weights_of(layers, heads, n), path)
            except ImportError as error:
                yield row | {"failed": f"not installed ({error})"}
                break
            row |= {"python": time.perf_counter() - start, "file": path.stat().st_size / 1e6}
            per_weight = row["file"] / (layers * heads * n * n)
            runs = [measured(browser, subject, path, options.limit) for _ in range(options.repeats)]
            yield row | middle(runs)


def alone(browser: Any, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    weights = weights_of(*ALONE)
    path = folder / "alone.html"
    start = time.perf_counter()
    save("AttentionView", weights, path)
    row = {
        "subject": "AttentionView, file",
        "case": " × ".join(map(str, ALONE)),
        "python": time.perf_counter() - start,
        "file": path.stat().st_size / 1e6,
    }
    return row | measured(browser, "AttentionView", path, options.limit)


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [run["failed"] for run in runs if "failed" in run]
    if failed:
        return {"failed": failed[0]}
    known = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: statistics.median(run[name] for run in runs) for name in known}


# In JupyterLab, from running the cell to the picture: Python, the wire and the browser together.
MAKE = """
import numpy as np
from attnlab_widgets.attention_view import AttentionView
weights = np.load("weights.npy")
tokens = [f"t{i}" for i in range(128)]
"""
RUN = """async count => {
  const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
  notebook.activeCellIndex = 1;
  const drawn = () => notebook.widgets[1].node.querySelector('[data-drawn]');
  await app.commands.execute('notebook:clear-cell-output');
  const start = performance.now();
  app.commands.execute('notebook:run-cell');
  while (drawn()) await new Promise(next => setTimeout(next, 2));
  while (!drawn()) await new Promise(next => setTimeout(next, 2));
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  return (performance.now() - start) / 1000;
}"""


def in_jupyterlab(browser: Any, folder: Path, repeats: int) -> dict[str, Any]:
    lessons = folder / "lessons"
    lessons.mkdir()
    np.save(lessons / "weights.npy", weights_of(*CASES[0]).numpy())
    write(lessons / "view.ipynb", [MAKE, "AttentionView(weights, tokens)"])
    with serving(folder, lessons) as url:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        notebook = Notebook(page, url, "lab/tree/view.ipynb")
        notebook.run_all()
        page.locator("[data-drawn]").wait_for()
        seconds = [page.evaluate(RUN) for _ in range(repeats + 1)]
        hover = hovered(page, TOKENS["AttentionView"])
        page.close()
    return {
        "subject": "AttentionView, JupyterLab",
        "case": "12 × 12 × 128",
        "picture": statistics.median(seconds[1:]),
        "hover": hover,
    }


# The query-key space: all heads at once, then one head with very many points.
SPACES = ((12, 12, 125), (1, 1, 2500))
"""Layers, heads, sequences of 20 tokens; each token is a query and a key."""
PAN = """async () => {
  const stage = document.querySelector('[data-testid=stage]');
  stage.setPointerCapture = () => {};
  const box = stage.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const send = (kind, across, down, more = {}) => stage.dispatchEvent(new (kind === 'wheel' ?
    WheelEvent : PointerEvent)(kind, {clientX: across, clientY: down, bubbles: true, ...more}));
  send('wheel', x, y, {deltaY: -400});
  send('pointerdown', x, y);
  const frames = [];
  for (let i = 0, last = performance.now(); i < 90; i++) {
    send('pointermove', x + 60 * Math.sin(i / 5), y + 40 * Math.cos(i / 5));
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  send('pointerup', x, y);
  return frames.slice(20).sort((a, b) => a - b)[35];
}"""


WHOLE = "document.querySelector('[data-whole=true]')"


def spaces(browser: Any, folder: Path, repeats: int) -> Iterator[dict[str, Any]]:
    for layers, heads, sequences in SPACES:
        maps = maps_of(points_of(tokens_of(sequences, 20), layers, heads))
        path = folder / f"space-{layers}-{heads}.html"
        start = time.perf_counter()
        QueryKeySpace(maps).save_html(path)
        row = {
            "subject": "QueryKeySpace, file",
            "case": f"{layers} × {heads} × {40 * sequences:,} points",
            "python": time.perf_counter() - start,
            "file": path.stat().st_size / 1e6,
        }
        yield row | middle([space(browser, path) for _ in range(repeats)])


def space(browser: Any, path: Path) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 993, "height": 760})
    page.goto(path.as_uri(), wait_until="commit")
    found = {"picture": page.evaluate(PICTURE, WHOLE)}
    if path.stem.endswith("1-1"):
        page.get_by_test_id("head-0-0").click()
        page.wait_for_timeout(500)
    found["pan"] = page.evaluate(PAN)
    page.close()
    return found


def measured_rows(
    browser: Any, folder: Path, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    if options.peers:
        yield from beside_peers(browser, folder, options)
        return
    yield from spaces(browser, folder, options.repeats)
    if not options.spaces:
        yield from beside_peers(browser, folder, options)
        yield in_jupyterlab(browser, folder, options.repeats)
        yield alone(browser, folder, options)
        yield from compared(browser, folder, options)


HEADINGS = (
    "what",
    "layers × heads × tokens or points",
    "picture (s)",
    "hover (ms)",
    "click (ms)",
    "zoom (ms)",
    "pan (ms)",
    "requests",
    "file (MB)",
    "python (s)",
)


def line(row: dict[str, Any]) -> tuple[str, ...]:
    def formatted(name: str, digits: int) -> str:
        return f"{row[name]:.{digits}f}" if name in row else ""

    picture = row.get("failed", formatted("picture", 2))
    work = (formatted("hover", 1), formatted("click", 1), formatted("zoom", 1), formatted("pan", 1))
    numbers = (*work, formatted("requests", 0), formatted("file", 2), formatted("python", 2))
    return (row["subject"], row["case"], picture, *numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure widgets in the browser.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one case")
    parser.add_argument("--quick", action="store_true", help="the first case only")
    parser.add_argument("--spaces", action="store_true", help="the query-key space only")
    parser.add_argument("--peers", action="store_true", help="attnview and CircuitsVis only")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        open_: Callable[..., Any] = driver.chromium.launch
        browser = open_(executable_path=program(), args=OPTIONS)
        rows = []
        for row in measured_rows(browser, Path(name), options):
            rows.append(row)
            print(" · ".join(part for part in line(row) if part), flush=True)
        browser.close()
    described = machine(torch.get_num_threads())
    print(machine_line(described))
    right = (False, False, *[True] * 8)
    print(grid(HEADINGS, [line(row) for row in rows], right, markdown=options.markdown))
    if options.json:
        options.json.write_text(json.dumps({"machine": described, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
