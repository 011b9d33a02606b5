"""The panels as a learner meets them: JupyterLab in headless Chromium, sliders moved by key and by drag.

Prints how long a panel takes from the key press to its changed picture and holds it to nothing: p95 is at most 70 ms on
an idle machine with two cores. SCREENSHOTS=folder keeps what was seen, LATENCIES=file what was measured: a line of JSON
each, for bench/panels.py, with PRESSES=number.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
import torch

import widgets
from kernels.elementwise.copy import copy
from widgets import PANELS
from widgets.toolkit.panel import Example

ROOT = Path(__file__).resolve().parents[2]
LESSON, EXERCISE = "lessons/05_rmsnorm.ipynb", "exercises/05_rmsnorm_exercise.ipynb"
TASK = "05_3"  # of the exercise: the first that wants a kernel
PRESSES = int(os.environ.get("PRESSES", 10))

pytestmark = pytest.mark.browser


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def _jupyterlab(home: Path, folder: Path, **environment):
    """A JupyterLab with settings of its own, in `home`, over a folder; yields its address."""
    settings = home / "settings" / "@jupyterlab"
    for path, content in (
        ("apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False}),
        ("docmanager-extension/plugin", {"autosave": False}),
    ):
        (settings / path).parent.mkdir(parents=True, exist_ok=True)
        settings.joinpath(path + ".jupyterlab-settings").write_text(json.dumps(content))
    env = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": f"{home}/config",
        "JUPYTER_DATA_DIR": f"{home}/data",
        "JUPYTER_RUNTIME_DIR": f"{home}/runtime",
        "IPYTHONDIR": f"{home}/ipython",
        "JUPYTERLAB_SETTINGS_DIR": f"{home}/settings",
        "JUPYTERLAB_WORKSPACES_DIR": f"{home}/workspaces",
        **environment,
    }
    port = _free_port()
    with open(home / "log", "w") as log:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={port}",
                "--ServerApp.port_retries=0",
                f"--ServerApp.root_dir={folder}",
                "--IdentityProvider.token=",
                "--LabApp.expose_app_in_browser=True",
            ],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{url}/api/status", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None or time.monotonic() > deadline:
                    pytest.fail("JupyterLab did not start:\n" + (home / "log").read_text()[-2000:])
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """(address, folder) of a JupyterLab over a folder that stands in for the checkout."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("course")
    for name in ("instruments", "kernels", "widgets", "grading", "bench", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    with _jupyterlab(home, folder) as url:
        yield url, folder


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.fixture(scope="module")
def notebook(browser, lab):
    """A page with a notebook of two cells, for all panels one after the other: a kernel starts and imports once."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(60_000)
    path = _notebook(lab[1], "panels.ipynb", "import torch, widgets", "")
    _open_and_run(page, lab, path)
    yield page
    page.close()


@pytest.fixture
def show(notebook):
    """show(source) runs source in the notebook's second cell, over what stood there; the page."""

    def show(source):
        _run(notebook, 1, source)
        assert _errors(notebook) == []
        return notebook

    return show


@pytest.fixture
def keep(tmp_path):
    """keep(page, name) stores a screenshot and tells where."""
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(page, name, **options):
        page.screenshot(path=folder / f"{name}.png", **options)
        return folder / f"{name}.png"

    return keep


def _notebook(folder: Path, name: str, *sources: str) -> str:
    first, *others = sources
    sources = (f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{first}", *others)
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in sources],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        ),
        folder / name,
    )
    return name


def _open(page, lab, path: str):
    """Opens a notebook and waits for its kernel."""
    page.goto(f"{lab[0]}/lab/tree/{path}?reset")
    page.wait_for_function(
        "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    )


def _open_and_run(page, lab, path: str, seconds: float = 120):
    """Opens a notebook, runs all its cells and waits until the kernel has nothing left to do."""
    _open(page, lab, path)
    page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(
        """() => { const w = window.jupyterapp.shell.currentWidget;
                   const cells = w.content.widgets.filter(c => c.model.type === 'code' && c.model.sharedModel.source);
                   return w.sessionContext.session.kernel.status === 'idle'
                       && cells.every(c => c.model.executionCount !== null
                                           || c.model.outputs.toJSON().some(o => o.output_type === 'error')); }""",
        timeout=seconds * 1000,
    )


def _errors(page) -> list:
    return page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code')
            .flatMap(c => c.model.outputs.toJSON()).filter(o => o.output_type === 'error')
            .map(o => o.ename + ': ' + o.evalue)"""
    )


def _panel(page, title: str):
    """A panel's outermost box, by its title."""
    title = page.locator(".jp-OutputArea-output .widget-html b", has_text=title).first
    title.wait_for()
    return title.locator("xpath=ancestor::*[contains(@class,'widget-vbox')][last()]")


def _state(panel) -> tuple:
    picture = panel.locator("img")
    return panel.locator("p[role=status]").inner_text(), picture.get_attribute("src"), picture.get_attribute("alt")


def _settled(page, panel) -> tuple:
    page.wait_for_timeout(150)
    return _state(panel)


def _await_change(page, panel, before: tuple) -> tuple:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        after = _state(panel)
        if after[0] != before[0] and after[1] != before[1] and after == _settled(page, panel):
            assert after[2].startswith(after[0]), "the caption is the text alternative's first sentence"
            assert panel.locator("p[role=alert]").count() == 0
            return after
        page.wait_for_timeout(20)
    pytest.fail(f"caption or picture did not change within 10 s; the caption is {before[0]!r}")


def _press(page, panel, handle: int, key: str = "ArrowRight"):
    before = _state(panel)
    panel.locator(".noUi-handle").nth(handle).focus()
    page.keyboard.press(key)
    return _await_change(page, panel, before)


def _drag(page, panel, handle: int, by: int):
    before = _state(panel)
    knob = panel.locator(".noUi-handle").nth(handle)
    knob.scroll_into_view_if_needed()
    box = knob.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by, y, steps=8)
    page.mouse.up()
    return _await_change(page, panel, before)


# From the input event to the end of decoding what it changed: `selector` names the element, `attribute` what changes.
WATCH = """([box, selector, event]) => {
    const shown = () => { const e = box.querySelector(selector); return e ? (e.src || e.textContent) : ''; };
    let start = null, last = shown();
    window.latencies = [];
    window.addEventListener(event, e => { start = e.timeStamp; }, true);
    new MutationObserver(async () => {
        if (start === null || shown() === last || !shown()) return;
        const begun = start;
        start = null; last = shown();
        const e = box.querySelector(selector);
        if (e.decode) await e.decode();
        window.latencies.push(performance.now() - begun);
    }).observe(box, {subtree: true, childList: true, attributes: true, characterData: true});
}"""


def _report(capsys, name: str, what: str, latencies: list):
    p50, p95 = statistics.median(latencies), statistics.quantiles(latencies, n=20)[-1]
    with capsys.disabled():
        print(f"\n{name}: {what} p50 {p50:.0f} ms, p95 {p95:.0f} ms ({len(latencies)} times)")
    if os.environ.get("LATENCIES"):
        figures = {"name": name, "p50 ms": round(p50), "p95 ms": round(p95), "presses": len(latencies)}
        with open(os.environ["LATENCIES"], "a") as file:
            file.write(json.dumps(figures) + "\n")


def _tried(name: str) -> tuple:
    """(its Example, its title, the cell that shows it) of a panel; watch is passed a kernel."""
    if name == "watch":
        call = "watch(copy, torch.rand(20_000))"
        source = f"import torch\nfrom kernels.elementwise.copy import copy\nfrom widgets import watch\n{call}"
        return Example(entry="3", text="Program 3"), widgets.watch(copy, torch.rand(20_000)).title, source
    example = PANELS[name]
    return example, getattr(widgets, name)().title, f"from widgets import {name}\n{name}(**{example.arguments!r})"


def test_the_menu_of_portrait_chooses_a_record_by_name(show):
    call = "portrait(rmsnorm, torch.rand(16, 1024), torch.rand(1024))"
    page = show(f"import torch\nfrom kernels.norms.rmsnorm import rmsnorm\nfrom widgets import portrait\n{call}")
    panel = _panel(page, "Portrait of rmsnorm")
    before = _state(panel)
    panel.locator("select").select_option(label="4,096 x 65,536 bf16")
    assert "at 4,096 x 65,536 bf16" in _await_change(page, panel, before)[2]


@pytest.mark.parametrize("name", [*PANELS, "watch"])
def test_sliders_move_caption_and_picture(name, show, keep, capsys):
    example, title, source = _tried(name)
    page = show(source)
    panel = _panel(page, title)
    keep(page, name)
    _press(page, panel, 0)
    _drag(page, panel, 0, -60)

    before = _state(panel)
    field = panel.locator("input[type=number]:visible, .widget-readout:visible").first
    field.fill(example.entry)
    field.press("Enter")
    assert example.text in _await_change(page, panel, before)[2]
    page.wait_for_timeout(500)  # the slider beside the field must not pull the value back to its nearest step
    assert example.text in _state(panel)[2]
    assert field.evaluate("field => field.value ?? field.textContent") == example.entry

    panel.locator(".noUi-handle").first.focus()
    page.evaluate(WATCH, [panel.element_handle(), "img", "keydown"])
    for i in range(PRESSES):
        page.keyboard.press("ArrowLeft" if i % 2 else "ArrowRight")
        page.wait_for_function(f"window.latencies.length === {i + 1}", polling=100)  # not a call in every frame
        page.wait_for_timeout(30)
    _report(capsys, name, "key press to changed picture", page.evaluate("window.latencies"))


def test_no_picture_hides_a_part_beside_the_file_browser(show, keep):
    calls = "; ".join(f"display({name}(**{example.arguments!r}))" for name, example in PANELS.items())
    page = show(f"from IPython.display import display\nfrom widgets import *\n{calls}")
    page.set_viewport_size({"width": 900, "height": 1000})
    page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    try:
        page.wait_for_function("document.querySelector('.bytes-first-card').clientWidth < 500")
        keep(page, "beside_the_file_browser")
        hidden = page.evaluate(
            """() => [...document.querySelectorAll('.bytes-first-card img')].map(i => i.parentElement)
                .map(box => box.scrollWidth - box.clientWidth)"""
        )
        assert len(hidden) == len(PANELS) and set(hidden) == {0}
    finally:
        page.set_viewport_size({"width": 1280, "height": 1000})
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")


def test_a_screen_reader_gets_names_and_values(show):
    """As Chromium's accessibility tree has them: a slider's name, and the number of rows rather than its logarithm."""
    page = show("from widgets import fusion_savings\nfusion_savings()")
    panel = _panel(page, "What fusing RMSNorm saves")
    rows = panel.get_by_role("slider", name="rows", exact=True)
    rows.wait_for()
    assert rows.get_attribute("aria-valuetext") == "8,192"
    before = _state(panel)
    rows.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("h => h.getAttribute('aria-valuetext') === '16,384'", arg=rows.element_handle())
    _await_change(page, panel, before)
    assert rows.get_attribute("aria-valuetext") == "16,384"
    exact = panel.get_by_role("spinbutton", name="rows, exact")
    exact.fill("5000")
    exact.press("Enter")
    page.wait_for_function("h => h.getAttribute('aria-valuetext') === '5,000'", arg=rows.element_handle())
    named = page.evaluate(
        "b => [...b.querySelectorAll('[role=slider]')].every(h => h.ariaLabel)", panel.element_handle()
    )
    assert named


def test_a_guess_is_locked_and_answered(show, keep, capsys):
    source = (
        f"from widgets import predict\nfrom IPython.display import display\n"
        f"for i in range({PRESSES}):\n    display(predict(f'q{{i}}', f'Question {{i}}?', 33.6, unit='MB'))"
    )
    page = show(source)
    output = page.locator(".jp-Cell").nth(1).locator(".jp-OutputArea").first
    entries, buttons = output.locator("input"), output.locator("button")
    buttons.last.wait_for()
    assert entries.count() == buttons.count() == PRESSES
    latencies = []
    for i in range(PRESSES):
        entries.nth(i).fill("30")
        entries.nth(i).press("Tab")
        page.wait_for_timeout(60)
        box = buttons.nth(i).locator("xpath=ancestor::*[contains(@class,'widget-vbox')][1]")
        page.evaluate(WATCH, [box.element_handle(), "p[role=status]", "pointerdown"])
        buttons.nth(i).click()
        page.wait_for_function("window.latencies.length === 1")
        latencies += page.evaluate("window.latencies")
    told = output.locator("p[role=status]").first.inner_text()
    assert told.startswith("Your guess: 30 MB. Answer: 33.6 MB.")
    assert entries.first.is_disabled() and buttons.first.inner_text() == "Locked"
    keep(page, "predict")
    _report(capsys, "predict", "click to answer", latencies)


def test_after_a_guess_the_keyboard_goes_on_from_its_cell(show):
    page = show("from widgets import predict\npredict('q', 'How many?', 33.6)")
    entry = page.locator(".jp-OutputArea input").first
    entry.fill("30")
    entry.press("Enter")
    page.locator("button:focus", has_text="Locked").wait_for()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function("!document.querySelectorAll('.jp-Cell')[1].classList.contains('jp-mod-active')")


# A learner's day


@pytest.fixture
def day(tmp_path, git, snapshot, monkeypatch):
    """(address, folder, upstream) of a JupyterLab over a learner's clone of the course, with work/ in it."""
    upstream, folder, home = snapshot(tmp_path / "upstream"), tmp_path / "course", tmp_path / "home"
    git(tmp_path, "clone", "--quiet", upstream, folder)
    home.mkdir()
    monkeypatch.setenv("JUPYTER_DATA_DIR", f"{home}/data")
    assert "copied" in _make_work(folder)
    with _jupyterlab(home, folder, BYTES_FIRST_PROGRESS="") as url:
        yield url, folder, upstream


def _make_work(folder: Path) -> str:
    """What `make work` runs, and says."""
    command = [sys.executable, "-m", "instruments.work"]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def _cells(path: Path) -> dict:
    """{nbgrader's name of a cell: its source} in a notebook."""
    return {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in nbformat.read(path, 4).cells}


def _close(page):
    """Closes the notebook; nothing may be asked."""
    page.evaluate("window.jupyterapp.commands.execute('application:close')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget?.context")
    assert page.locator(".jp-Dialog").count() == 0


def _run(page, index: int, source: str = ""):
    """Goes to a notebook's cell, types `source` over what it holds, and runs it by Shift and Enter."""
    page.evaluate("index => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = index; }", index)
    page.evaluate("window.jupyterapp.commands.execute('notebook:enter-edit-mode')")
    page.wait_for_function(  # what is typed must not go elsewhere
        """index => { const editor = window.jupyterapp.shell.currentWidget.content.widgets[index].editor;
                      editor?.focus();
                      return editor?.hasFocus(); }""",
        arg=index,
    )
    if source:
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(source)
    page.evaluate(
        "index => { window.count = window.jupyterapp.shell.currentWidget.content.widgets[index].model.executionCount }",
        index,
    )
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        """index => { const w = window.jupyterapp.shell.currentWidget, cell = w.content.widgets[index].model;
                      return (cell.executionCount ?? 0) > (window.count ?? 0)
                          && w.sessionContext.session.kernel.status === 'idle'; }""",
        arg=index,
    )


def _card(page, task: str):
    """The card of a check, by its task."""
    return page.locator(".jp-OutputArea-output div[role=status]", has_text=task).first


def test_the_first_screen_shows_a_picture_and_whole_words_before_anything_has_run(page, day, keep):
    page.set_viewport_size({"width": 1280, "height": 900})
    _open(page, day, "work/lessons/00_start_here.ipynb")
    picture = page.locator(".jp-OutputArea-output img").first
    picture.wait_for()
    keep(page, "first_screen")
    box = picture.bounding_box()
    assert box["width"] > 500 and box["y"] + box["height"] < 900
    style = "pre => { const s = getComputedStyle(pre); return [s.wordBreak, s.overflowWrap]; }"
    printed = page.locator(".jp-OutputArea-output pre").first
    assert printed.evaluate(style) == ["normal", "normal"]


def test_a_day(page, day, git, keep, capsys):
    """Lesson 05 in work/ is looked at, run and saved, a guess locked, a check failed, watched and passed; then the
    course is updated, and nothing is lost."""
    url, folder, upstream = day
    work = folder / "work"

    for path in (LESSON, EXERCISE):  # JupyterLab finds nothing to complete in a copy that is only looked at
        _open(page, day, f"work/{path}")
        page.wait_for_function("window.jupyterapp.shell.currentWidget.model.getMetadata('language_info')?.version")
        page.wait_for_timeout(500)  # what the kernel has said is in the model; what follows from it may come later
        assert page.evaluate("window.jupyterapp.shell.currentWidget.model.dirty") is False
        _close(page)

    _open_and_run(page, day, f"work/{LESSON}", seconds=400)
    assert _errors(page) == []
    guess = page.get_by_placeholder("a number").first
    guess.fill("7")
    guess.press("Enter")
    told = page.locator(".jp-OutputArea p[role=status]", has_text="Your guess: 7 ").first
    told.wait_for()
    assert guess.is_disabled()
    keep(page, "day_guess")
    if "watch(" in (work / LESSON).read_text(encoding="utf-8"):
        _press(page, _panel(page, "Watch "), 1, "ArrowLeft")
    page.keyboard.press("Control+s")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.model.dirty")
    _close(page)

    cells = nbformat.read(work / EXERCISE, as_version=4).cells
    names = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in cells]
    first = next(i for i, name in enumerate(names) if name)
    answer, check = names.index(f"answer_{TASK}"), names.index(f"check_{TASK}")
    right = _cells(folder / "solutions/05_rmsnorm_solution.ipynb")[f"answer_{TASK}"]
    wrong = right.replace("triton.next_power_of_2(cols)", "1024")
    assert wrong != right
    _open(page, day, f"work/{EXERCISE}")
    for index in (i for i in range(first) if cells[i].cell_type == "code"):
        _run(page, index)
    for source, sign in ((wrong, "✗ wrong"), (right, "✓ right")):
        _run(page, answer, source)
        _run(page, check)
        card = _card(page, TASK.replace("_", "."))
        assert card.inner_text().startswith(sign), card.inner_text()
        keep(page, f"day_{sign[2:]}")
        if source == wrong:
            panel = _panel(page, "Watch ")
            assert "no program stores" in _state(panel)[0]
            _press(page, panel, 1, "ArrowLeft")
    assert _errors(page) == []
    page.keyboard.press("Control+s")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.model.dirty")
    _close(page)

    assert git(folder, "status", "--porcelain") == ""
    for path in (LESSON, EXERCISE):
        newer = nbformat.read(upstream / path, as_version=4)
        newer.cells.append(nbformat.v4.new_markdown_cell("Newer.", id="newer"))
        nbformat.write(newer, upstream / path)
    git(upstream, "commit", "--quiet", "--all", "--message", "newer")
    git(folder, "pull", "--quiet")
    mine, progress = (work / EXERCISE).read_bytes(), (work / "progress.json").read_bytes()
    beside = EXERCISE.replace(".ipynb", " (new).ipynb")
    assert _make_work(folder) == (
        f"work/: renewed {LESSON}; kept {EXERCISE} as you changed it, with the new version beside it as {beside!r}.\n"
    )
    assert [nbformat.read(work / path, 4).cells[-1].source == "Newer." for path in (LESSON, EXERCISE, beside)] == [
        True,
        False,
        True,
    ]
    assert (work / EXERCISE).read_bytes() == mine and _cells(work / EXERCISE)[f"answer_{TASK}"] == right
    assert (work / "progress.json").read_bytes() == progress
    kept = json.loads(progress)
    assert [g["guess"] for g in kept["guesses"].values()] == [7.0]
    assert kept["tasks"][TASK.replace("_", ".")]["status"] in ("passed", "pending")


# The book

BOOK = ROOT / "build" / "book" / "html"


@pytest.mark.skipif(not BOOK.is_dir(), reason="needs the book: make book")
def test_the_books_panels_are_drawn_without_a_server(browser):
    """A browser gives a page that is opened as a file neither modules nor fetched data."""
    page = browser.new_page()
    page.goto((BOOK / "lessons" / "01_roofline.html").as_uri())
    panel = page.locator(".panel").first
    panel.scroll_into_view_if_needed()
    page.locator(".panel[data-drawn=yes] input").first.wait_for()
    page.close()


@pytest.mark.skipif(not BOOK.is_dir(), reason="needs the book: make book")
@pytest.mark.parametrize("term", ["ridge point", "tile", "split-K", "log-sum-exp"])
def test_the_books_search_finds_a_term_in_the_glossary_first(browser, term):
    page = browser.new_page()
    page.goto((BOOK / "search.html").as_uri() + f"?q={term}")
    page.locator("#search-results li a").first.wait_for()
    page.wait_for_timeout(1500)  # results come one by one, the best first
    assert "docs/glossary.html#" in page.locator("#search-results li a").first.get_attribute("href")
    page.close()
