"""A real JupyterLab in a real Chromium, of which nothing can leave the machine.

``lab``         the server, one for all tests, in a folder of its own; kernels import attnlab here
``notebook_7``  another server of the same kind, for Jupyter Notebook 7
``tabs``        opens pages, and remembers what they asked for and what went wrong in them
``opened``      a notebook in JupyterLab, from cells given as text: run it, read it; at rest after
                the last test of the file, when the next one takes its place
``opened_alone`` a lesson in JupyterLab, in place of the notebook before it
``page``        a tab for saved files, one for all tests, as good as new at the beginning of each
``expect``      playwright's: asserts that something comes to be so
``soon``        the same for whatever can be read
``still``       where something is on the page, once nothing moves it any more
After every test no tab may have an error in its console, nor have asked for another machine.
"""

import contextlib
import copy
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.browser import warm_kernels

ROOT = Path(__file__).parents[2]
PATIENCE = 120
"""Seconds after which what has not come will not: a busy machine draws and answers slowly."""
SCREENSHOTS = ROOT / "screenshots"
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
ELSEWHERE = re.compile(r"^(?!(https?|wss?)://(localhost|127\.0\.0\.1)[:/]|(data|blob|file|about):)")
BADGES = re.compile(
    r"^https://(colab\.research\.google\.com/assets/colab-badge\.svg|mybinder\.org/badge_logo\.svg)$"
)
"""Pictures in the header of a lesson, of the services that they lead to; drawn by their owners."""
HARMLESS = {
    r"^error: undefined$": "plotly rejects, with nothing, the promise of a frame that the next one "
    "interrupts; its slider waits for none, and one click starts two frames",
    r"^error: TypeError: [^\n]*reading 'schema'\)\n[^\n]*/notebook_core\.": "Notebook 7's "
    "shortcuts ask for settings of a plugin that still loads; no line of ours is in the trace",
    r"^console: Could not restore the debugger state: Canceled future for debug_request": "a "
    "notebook's debugger still asks its kernel, which ends with the test",
}
"""What a page may complain of (a pattern of the whole complaint), and why we are not at fault."""
PATIENT = f"""{{
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = milliseconds => timeout(Math.max(milliseconds, 1000 * {PATIENCE}));
}}"""
"""anywidget gives up on a widget whose code is not loaded after two seconds: a busy machine's."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test may wait several times, and the first of a file waits for Jupyter, too."""
    for item in items:
        own = item.get_closest_marker("timeout")
        if item.path.parent == Path(__file__).parent and own is None:
            item.add_marker(pytest.mark.timeout(10 * PATIENCE))


class OneNotebookOneWorker(LoadScopeScheduling):
    """Every worker has a browser and a server of its own; the tests of a file share their notebook,
    so that they stay together, the lessons share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return nodeid if file.endswith("test_lessons.py") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return OneNotebookOneWorker(config, log)


# --------------------------------------------------------------------------------------- pages


def missing() -> str | None:
    """The sentence that says why there is no browser here, if so."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "the browser tests need playwright: pip install 'attnlab[test]'"
    if program() is None:
        return "the browser tests need chromium, on Debian: sudo apt-get install chromium"
    return None


def program() -> str | None:
    """Chromium's headless shell, which draws no window around its pages and is a quarter cheaper;
    else Chromium."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


WINDOW: Any = {"width": 1280, "height": 900}
POLLING = 50
"""Milliseconds between two questions to a page that waits for its kernel; else it would be drawn
sixty times a second for them."""


@dataclass
class Tabs:
    """Opens pages; ``complaints()`` tells, once, what went wrong in them.

    They share what a browser keeps between pages: what JupyterLab consists of is loaded once. Were
    requests routed, nothing would be kept, so that they are only listened to; OPTIONS refuse them.
    """

    browser: Any
    _heard: list[str] = field(default_factory=list)
    _kept: dict[bool, Any] = field(default_factory=dict)
    answered: list[Any] = field(default_factory=list)
    """Pages for which a test answers in place of other machines."""

    def open(self, *, dark: bool = False, offline: bool = False) -> Any:
        if offline not in self._kept:
            self._kept[offline] = self._context(offline)
        page = self._kept[offline].new_page()
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.on("websocket", self._socket)
        return page

    def _context(self, offline: bool) -> Any:
        context = self.browser.new_context(
            offline=offline, service_workers="block", viewport=WINDOW
        )
        context.set_default_timeout(1000 * PATIENCE)
        context.add_init_script(PATIENT)
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", self._error)
        return context

    @property
    def heard(self) -> bool:
        return bool(self._heard)

    def complaints(self) -> list[str]:
        heard, self._heard[:] = self._heard[:], []
        return heard

    def _request(self, request: Any) -> None:
        if not ELSEWHERE.match(request.url) or BADGES.match(request.url):
            return
        if request.frame.page not in self.answered:
            self._heard.append(f"asked for {request.url}")

    def _socket(self, socket: Any) -> None:
        if ELSEWHERE.match(socket.url):
            self._heard.append(f"asked for {socket.url}")

    def _error(self, event: Any) -> None:
        self._hear(f"error: {getattr(event.error, 'stack', None) or event.error}")

    def _console(self, message: Any) -> None:
        if message.type == "error" and not BADGES.match(message.location.get("url", "")):
            self._hear(f"console: {message.text} ({message.location.get('url')})")

    def _hear(self, complaint: str) -> None:
        if not any(re.search(known, complaint) for known in HARMLESS):
            self._heard.append(complaint)


@pytest.fixture(scope="session")
def tabs() -> Iterator[Tabs]:
    reason = missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=OPTIONS)
        yield Tabs(browser)
        browser.close()


@pytest.fixture(autouse=True)
def _quiet_and_alone(tabs: Tabs) -> Iterator[None]:
    yield
    assert tabs.complaints() == []


@pytest.fixture(scope="session")
def _one_page(tabs: Tabs) -> list[Any]:
    return []


@pytest.fixture
def page(tabs: Tabs, _one_page: list[Any]) -> Iterator[Any]:
    """A tab without a network, for files on the disk; a new one costs more than most tests."""
    if not _one_page or _one_page[-1].is_closed():
        _one_page.append(tabs.open(offline=True))
    page = _one_page[-1]
    yield page
    page.mouse.move(0, 0)
    if page.viewport_size != WINDOW:  # else what it shows would be drawn once more
        page.goto("about:blank")
        page.set_viewport_size(WINDOW)
    page.emulate_media(color_scheme="light", reduced_motion="null")


# -------------------------------------------------------------------------------------- waiting

# A page is drawn one frame after its data change, and a kernel answers when it is free: what is
# read just after a click may still be the state before it.


@pytest.fixture(scope="session")
def expect(tabs: Tabs) -> Any:
    from playwright.sync_api import expect

    return expect


@pytest.fixture(scope="session")
def soon() -> Callable[[Callable[[], Any], Any], Any]:
    return come


def come(read: Callable[[], Any], wanted: Any) -> Any:
    """Read again and again until it equals what is wanted, or until ``wanted(it)``; gives it."""
    right = wanted if callable(wanted) else lambda found: found == wanted
    deadline = time.monotonic() + PATIENCE
    while not right(found := read()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if callable(wanted):
        assert wanted(found), found
    else:
        assert found == wanted
    return found


STILL = """async node => {
  for (let last = '', calm = 0; calm < 6;) {
    await new Promise(done => requestAnimationFrame(done));
    const now = JSON.stringify(node.getBoundingClientRect());
    calm = now === last ? calm + 1 : 0;
    last = now;
  }
  return node.getBoundingClientRect().toJSON();
}"""


@pytest.fixture(scope="session")
def still() -> Callable[[Any], dict[str, float]]:
    def where(target: Any) -> dict[str, float]:
        target.scroll_into_view_if_needed()
        return target.evaluate(STILL)  # type: ignore[no-any-return]

    return where


# --------------------------------------------------------------------------------------- server


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address and the folder that it shows."""

    url: str
    folder: Path


@pytest.fixture(scope="session")
def lab(
    tabs: Tabs, watched: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("jupyter")
    folder = home / "lessons"
    shutil.copytree(ROOT / "notebooks", folder) if (ROOT / "notebooks").exists() else folder.mkdir()
    with warm(home), serving(home, folder) as url:
        yield Lab(url, folder)


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """The folder in which kernels write what they read; None in CI, where nothing is kept."""
    if os.environ.get("CI") == "true":
        yield None
        return
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("watched")
        patch.setenv("ATTNLAB_WATCHED_LESSONS", str(folder))
        yield folder


@contextlib.contextmanager
def warm(home: Path) -> Iterator[None]:
    """Kernels are forked from a process that has imported what notebooks import."""
    at = home / "data/kernels/python3/kernel.json"
    at.parent.mkdir(parents=True)
    at.write_text(json.dumps(warm_kernels.spec(home)))
    command = [sys.executable, warm_kernels.__file__, "serve", str(warm_kernels.door(home))]
    with (home / "warm.log").open("wb") as log:
        serving = subprocess.Popen(command, env=environment(home), stdout=log, stderr=log)
    try:
        yield
    finally:
        serving.terminate()
        serving.wait()


@pytest.fixture(scope="module")
def notebook_7(tabs: Tabs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if importlib.util.find_spec("notebook") is None:
        reason = "the tests in Jupyter Notebook 7 need it: pip install 'attnlab[test]'"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    home = tmp_path_factory.mktemp("notebook")
    (home / "lessons").mkdir()
    with serving(home, home / "lessons", NOTEBOOK_7) as url:
        yield Lab(url, home / "lessons")


JUPYTERLAB = (
    *("jupyterlab", "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"),
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)
NOTEBOOK_7 = ("notebook", "--JupyterNotebookApp.expose_app_in_browser=True")


@contextlib.contextmanager
def serving(home: Path, folder: Path, application: Sequence[str] = JUPYTERLAB) -> Iterator[str]:
    """JupyterLab as it comes, with settings of its own; stopped with all of its kernels."""
    log = home / "server.log"
    notices = home / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    notices.parent.mkdir(parents=True)
    notices.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    command = [
        *(sys.executable, "-m", *application, "--no-browser", "--allow-root"),
        *(f"--ServerApp.port={free_port()}", "--ServerApp.port_retries=50"),
        *("--ServerApp.ip=127.0.0.1", "--IdentityProvider.token="),
        f"--ServerApp.root_dir={folder}",
    ]
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(home),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield address(home, server, log)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def free_port() -> int:
    """Free now; whoever takes it meanwhile makes the server try others."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """That of this process, with this repository to import and nothing of the user's settings."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    return mine | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'widgets'}",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_PATH": str(home / "data"),  # before the kernels of the environment
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "OMP_NUM_THREADS": "1",
        "OMP_THREAD_LIMIT": "1",  # two workers share two cores
        "TQDM_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "ATTNLAB_TRY_PREDICTIONS": "1",  # what a lesson shows after a guess is drawn, too
    }


def address(home: Path, server: subprocess.Popen[bytes], log: Path) -> str:
    """Of the server, once it answers; it writes down the port that it has got."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.poll() is None:
        for written in (home / "runtime").glob("jpserver-*.json"):
            with contextlib.suppress(OSError, ValueError):
                url = f"http://127.0.0.1:{json.loads(written.read_text())['port']}"
                with urllib.request.urlopen(url + "/api/status", timeout=PATIENCE):
                    return url
        time.sleep(0.1)
    pytest.fail(f"Jupyter did not start; its log ends:\n{log.read_text()[-3000:]}")


# ------------------------------------------------------------------------------------ notebooks

# JupyterLab keeps only the cells near the window on the page, and a folded cell has no prompt: what
# ran and what came out is asked of the notebook's model.
MODELS = """(() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'code').map(cell => cell.model))()"""
FINISHED = f"""() => {{
  const models = {MODELS};
  const {{kernel}} = window.jupyterapp.shell.currentWidget.sessionContext.session ?? {{}};
  const failed = ({{outputs}}) =>
    Array.from({{length: outputs.length}}, (_, at) => outputs.get(at).type).includes('error');
  return models.every(model => model.executionCount !== null && model.executionState !== 'running')
    || models.some(failed) || !kernel || /dead|restarting/.test(kernel.status);
}}"""
UNRUN = f"() => {MODELS}.filter(model => model.executionCount === null).length"
FORGET = f"() => {MODELS}.forEach(model => model.clearExecution())"
SAVED = f"() => {MODELS}.map(model => model.toJSON())"
# Asked without the rest: pictures and figures are large.
OUTPUTS = "(({outputs}) => Array.from({length: outputs.length}, (_, at) => outputs.get(at)))"
HOLDING = f"""kind => {MODELS}.flatMap((model, number) =>
  {OUTPUTS}(model).some(({{data}}) => kind in (data ?? {{}})) ? [number] : [])"""
FAULTS = f"""() => {MODELS}.flatMap(model =>
  {OUTPUTS}(model)
    .filter(({{type}}) => type === 'error' || type === 'stream').map(output => output.toJSON())
    .filter(output => output.output_type === 'error' || output.name === 'stderr'))"""
PRINTED = f"""number => {MODELS}[number].outputs.toJSON()
  .map(output => [output.text ?? ''].flat().join('')).join('')"""
DRAWN = """async ([number, seconds, selector]) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const cell = notebook.widgets.filter(cell => cell.model.type === 'code')[number];
  await notebook.scrollToItem(notebook.widgets.indexOf(cell), 'start');
  for (const start = Date.now(); Date.now() - start < 1000 * seconds;) {
    const drawn = cell.node.querySelector(selector)?.getBoundingClientRect();
    if (drawn?.width > 100 && drawn.height > 10) return true;
    await new Promise(done => setTimeout(done, 100));
  }
  return false;
}"""


CELL = """(() => {
  window.notebook = window.jupyterapp.shell.currentWidget.content;
  return notebook.widgets.filter(cell => cell.model.type === 'code')[number];
})()"""
# Far from the window a cell is hidden, and one that was never near is not on the page at all:
# counting there would find another one.
NUMBERED = f"""async number => {{
  const cell = {CELL}, {{node}} = cell;
  node.dataset.number = number;
  if (!node.getClientRects().length) await notebook.scrollToItem(notebook.widgets.indexOf(cell));
}}"""


class Notebook:
    """A notebook open in JupyterLab, used as its reader would."""

    def __init__(self, page: Any, server: str, place: str) -> None:
        self.page, self.server = page, server
        page.goto(f"{server}/{place}")
        self._wait()

    def after(self, name: str) -> "Notebook":
        """Another notebook in this one's place, as when a reader goes on to the next lesson.

        To load JupyterLab takes longer than most notebooks run."""
        following = copy.copy(self)
        self.page.evaluate(NEXT, name)
        following._wait()
        return following

    def _wait(self) -> None:
        page = self.page
        page.locator(".jp-NotebookPanel .jp-Notebook").wait_for()
        page.locator(".jp-CodeCell").first.wait_for()

    @property
    def cells(self) -> Any:
        """All cells, text among them; Locators."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")

    @property
    def code(self) -> Any:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")

    def output(self, number: int) -> Any:
        """What the code cell of that number (from 0) shows."""
        self.page.evaluate(NUMBERED, number)
        shown = self.code.and_(self.page.locator(f"[data-number='{number}']"))
        shown = shown.locator(".jp-Cell-outputArea")
        shown.scroll_into_view_if_needed()
        return shown

    def run_all(self, seconds: float = 2 * PATIENCE) -> None:
        """Through the menu, as a reader does; waits for the kernel, and for every cell."""
        self.page.wait_for_function(IDLE, polling=POLLING)
        self.page.evaluate(FORGET)  # what ran when it was saved has not run here
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.page.wait_for_function(FINISHED, timeout=1000 * seconds, polling=POLLING)
        assert self.errors() == []
        assert self.page.evaluate(UNRUN) == 0, "the kernel stopped before the last cell"

    def close(self) -> None:
        """The page and its kernel end, so that neither is at work beside the next test."""
        kernel = self.page.evaluate(KERNEL)
        self.page.close()
        self._end(kernel)

    def leave(self) -> None:
        """The same where the page may no longer answer: all kernels of the server end."""
        self.page.close()
        for kernel in self.page.context.request.get(f"{self.server}/api/kernels").json():
            self._end(kernel["id"])

    def _end(self, kernel: str) -> None:
        context = self.page.context
        known = {cookie["name"]: cookie["value"] for cookie in context.cookies(self.server)}
        gone = context.request.delete(
            f"{self.server}/api/kernels/{kernel}", headers={"X-XSRFToken": known.get("_xsrf", "")}
        )
        assert gone.ok, gone.status_text

    def rest(self) -> None:
        """The kernel ends; the page stays, as good as new."""
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size(WINDOW)
        self.page.emulate_media(color_scheme="light", reduced_motion="null")
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def saved(self) -> list[dict[str, Any]]:
        """The code cells with their outputs, as they would be saved."""
        return self.page.evaluate(SAVED)  # type: ignore[no-any-return]

    def errors(self) -> list[Any]:
        """What cells printed as an error or a warning."""
        return self.page.evaluate(FAULTS)  # type: ignore[no-any-return]

    def holding(self, kind: str) -> list[int]:
        """The numbers of the code cells that show something of that MIME type."""
        return self.page.evaluate(HOLDING, kind)  # type: ignore[no-any-return]

    def draws(self, number: int, selector: str) -> bool:
        """Whether the code cell of that number has such an element of some size on the page."""
        return self.page.evaluate(DRAWN, [number, PATIENCE, selector])  # type: ignore[no-any-return]

    def write(self, number: int, code: str) -> None:
        """Put other code into a code cell."""
        self.page.evaluate(
            f"([number, code]) => {{ {CELL}.model.sharedModel.setSource(code) }}", [number, code]
        )

    def run(self, number: int) -> str:
        """Run one code cell; what it printed, which is on the page a little later."""
        self.page.evaluate(
            f"""async number => {{
              const cell = {CELL};
              notebook.activeCellIndex = notebook.widgets.indexOf(cell);
              await window.jupyterapp.commands.execute('notebook:run-cell');
            }}""",
            number,
        )
        self.page.wait_for_function(FINISHED, polling=POLLING)
        assert self.errors() == []
        return str(self.page.evaluate(PRINTED, number)).strip()

    def prints(self, number: int, words: str) -> None:
        """The cell, run again and again, comes to print this.

        While a kernel has not confirmed one change of a widget, the page keeps the next ones back:
        what was clicked last may come to it after the cell.
        """
        come(lambda: self.run(number), words)

    @property
    def shots(self) -> Path:
        SCREENSHOTS.mkdir(exist_ok=True)
        return SCREENSHOTS

    def select(self, number: int) -> None:
        """From the keyboard: make that cell the active one, in command mode."""
        keys = self.page.keyboard
        enter = "window.jupyterapp.commands.execute('notebook:enter-command-mode')"
        self.page.evaluate(f"document.activeElement.blur(), {enter}")
        for _ in range(self.cells.count()):
            keys.press("ArrowUp")
        for _ in range(number):
            keys.press("ArrowDown")
        self.cells.nth(number).and_(self.page.locator(".jp-mod-active")).wait_for()

    def tab_into(self, target: Any, most: int = 12) -> None:
        """Press Tab until the focus is on the target or in it."""
        inside = "target => target.contains(document.activeElement)"
        passed = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if target.evaluate(inside):
                return
            passed.append(self.page.evaluate("document.activeElement.outerHTML.slice(0, 90)"))
        pytest.fail(f"Tab does not reach {target}, but:\n" + "\n".join(passed))

    @contextlib.contextmanager
    def dark(self) -> Iterator[None]:
        """While it lasts, JupyterLab has its dark theme."""
        self._theme("Dark")
        try:
            yield
        finally:
            self._theme("Light")

    def _theme(self, name: str) -> None:
        change = (
            "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
        )
        self.page.evaluate(change, f"JupyterLab {name}")
        light = str(name == "Light").lower()
        self.page.locator(f'body[data-jp-theme-light="{light}"]').wait_for(state="attached")
        # Its veil lingers for a moment; a change meanwhile would have it taken away twice.
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def shown_at(self, number: int, wide: int) -> dict[str, float]:
        """Where the widget of a code cell stands in a window in which its cell is so wide."""
        shown = self.output(number).locator(".jp-OutputArea-output").first

        # The window may show or hide a side bar a moment later, so it is corrected until it fits.
        def width() -> int:
            found = shown.evaluate("node => node.clientWidth")
            if found != wide:
                changed = self.page.viewport_size["width"] + wide - found
                self.page.set_viewport_size({"width": changed, "height": 1400})
                shown.evaluate(STILL)
            return int(found)

        come(width, wide)
        return shown.locator(":scope > *").first.evaluate(STILL)  # type: ignore[no-any-return]

    def overlapping(self, number: int) -> list[tuple[str, str]]:
        """Pairs of controls of a code cell's output that stand on each other."""
        return on_each_other(self.output(number))

    def screenshot(self, name: str) -> None:
        """For people to look at, of whom there are none in CI."""
        if os.environ.get("CI") != "true":
            self.page.screenshot(path=self.shots / f"{name}.png")


def on_each_other(area: Any) -> list[tuple[str, str]]:
    found = area.evaluate(CONTROLS)
    return [
        (one[0], other[0])
        for at, one in enumerate(found)
        for other in found[at + 1 :]
        if one[1] < other[3] - 1 and other[1] < one[3] - 1
        if one[2] < other[4] - 1 and other[2] < one[4] - 1
    ]


@pytest.fixture(scope="session")
def overlapping() -> Callable[[Any], list[tuple[str, str]]]:
    """Pairs of controls in a part of a page that stand on each other."""
    return on_each_other


CONTROLS = """area => [...area.querySelectorAll(
    'select, input, button, textarea, label, [role=slider]')]
  .filter(node => node.checkVisibility() && !node.closest('svg'))
  .filter(node => !node.querySelector('input, select'))
  .filter(node => !node.closest('[role=slider], .noUi-base') || node.matches('[role=slider]'))
  .map(node => {
    let {left, top, right, bottom} = node.getBoundingClientRect();
    for (let at = node.parentElement; at && area.contains(at); at = at.parentElement) {
      if (getComputedStyle(at).overflowY === 'visible') continue;
      const shown = at.getBoundingClientRect(); // what is scrolled out of it is not seen
      [left, right] = [Math.max(left, shown.left), Math.min(right, shown.right)];
      [top, bottom] = [Math.max(top, shown.top), Math.min(bottom, shown.bottom)];
    }
    return [node.outerHTML.slice(0, 90), left, top, right, bottom];
  })
  .filter(([, left, top, right, bottom]) => left < right && top < bottom)"""
NEXT = """async name => {
  const {shell, commands} = window.jupyterapp;
  const last = shell.currentWidget;
  await commands.execute('docmanager:open', {path: name, factory: 'Notebook'});
  last.dispose();
}"""
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"
IDLE = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle';
}"""


NOTEBOOKS_A_PAGE = 8
"""JupyterLab keeps something of every notebook that it has shown."""


@dataclass
class OnePage:
    """The page of JupyterLab in which one notebook is opened in place of another."""

    tabs: Tabs
    lab: Lab
    session: pytest.Session
    _shown: list[Notebook] = field(default_factory=list)
    """The notebooks that the page has shown; empty where there is none."""

    @contextlib.contextmanager
    def lent(self) -> Iterator[Callable[[str], Notebook]]:
        """Opens a notebook; after a test that fails meanwhile the next page is a new one."""
        failed, before = self.session.testsfailed, len(self._shown)

        def open_one(name: str) -> Notebook:
            if self._shown:
                self._shown.append(self._shown[-1].after(name))
            else:
                place = f"lab/workspaces/tests-{Path(name).stem}/tree/{name}"
                self._shown.append(Notebook(self.tabs.open(), self.lab.url, place))
            return self._shown[-1]

        yield open_one
        if self.session.testsfailed > failed or len(self._shown) >= NOTEBOOKS_A_PAGE:
            for book in self._shown[-1:]:
                book.leave()
            self._shown.clear()
        elif len(self._shown) > before:
            self._shown[-1].rest()


@pytest.fixture(scope="session")
def _one_lab_page(lab: Lab, tabs: Tabs, request: pytest.FixtureRequest) -> OnePage:
    return OnePage(tabs, lab, request.session)


@pytest.fixture
def opened_alone(_one_lab_page: OnePage) -> Iterator[Callable[[str], Notebook]]:
    """Opens a notebook in the page of the one before."""
    with _one_lab_page.lent() as open_one:
        yield open_one


@pytest.fixture(scope="module")
def opened(lab: Lab, tabs: Tabs, _one_lab_page: OnePage) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook by its name in the folder; or writes one from cells, then opens it.

    The first of a file stands in the page of the one before, others have pages of their own."""
    with (
        _one_lab_page.lent() as first,
        opening(tabs, lab, "lab/workspaces/tests-{stem}-{number}/tree/{name}", first) as open_one,
    ):
        yield open_one


@pytest.fixture(scope="module")
def opened_in_7(notebook_7: Lab, tabs: Tabs) -> Iterator[Callable[..., Notebook]]:
    """The same in Jupyter Notebook 7."""
    with opening(tabs, notebook_7, "notebooks/{name}") as open_one:
        yield open_one


@contextlib.contextmanager
def opening(
    tabs: Tabs, server: Lab, path: str, first: Callable[[str], Notebook] | None = None
) -> Iterator[Callable[..., Notebook]]:
    books: list[Notebook] = []
    given: list[Notebook] = []

    def open_one(name: str, cells: Sequence[str] | None = None, *, dark: bool = False) -> Notebook:
        if cells is not None:
            write(server.folder / name, cells)
        if first and not given and not dark:
            given.append(first(name))
            return given[0]
        place = path.format(name=name, stem=Path(name).stem, number=len(books))
        books.append(Notebook(tabs.open(dark=dark), server.url, place))
        return books[-1]

    yield open_one
    for book in books:
        if not book.page.is_closed():
            book.close()


def write(path: Path, cells: Sequence[str]) -> None:
    import nbformat

    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(book, path)


# -------------------------------------------------------------------------------------- bertviz

PACKAGES = Path(__file__).parent / "node_modules"
CDN = "https://cdnjs.cloudflare.com/ajax/libs/"
SERVED = {
    "require.js/2.3.6/require.min.js": "requirejs/require.js",
    "d3/5.7.0/d3.min.js": "d3/dist/d3.min.js",
    "jquery/2.0.0/jquery.min.js": "jquery/dist/jquery.min.js",
}


def serve_cdn(page: Any) -> None:
    """Answer, from npm packages, what bertviz asks a CDN for."""

    def answer(route: Any) -> None:
        route.fulfill(path=PACKAGES / SERVED[route.request.url.removeprefix(CDN)])

    page.route(re.compile(re.escape(CDN)), answer)


@pytest.fixture(scope="session")
def cdn(tabs: Tabs) -> Callable[[Any], None]:
    if not PACKAGES.exists():
        reason = "bertviz's libraries are not here: npm ci --prefix tests/browser"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)

    def answering(page: Any) -> None:
        tabs.answered.append(page)
        serve_cdn(page)

    return answering
