"""Every notebook as Colab opens it: alone in an empty folder, in Colab's versions. `make test-colab` runs this file.

The kernel stands in for that of Colab's runtime without a GPU: google.colab is loaded, what Colab's image lacks cannot
be imported until the notebook's first cell has had pip install it, and pip only notes what it was asked for. GitHub is
this working tree as it is, by git's own url.insteadOf.
"""

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from instruments import notebooks, start

ADDRESS = "https://github.com/owner/course"

#: Read by every Python that is started with it on the path, before anything else.
IMAGE = f"""\
import sys
import types
from importlib.machinery import PathFinder
from pathlib import Path

INSTALLED = Path(__file__).with_name("installed")


class Image(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in {start.MISSING_ON_COLAB} and package not in INSTALLED.read_text().split():
            return None
        return super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Image
sys.modules["google.colab"] = types.ModuleType("google.colab")
"""
PIP = """\
import re
import sys
from pathlib import Path

names = [re.match(r"[\\w-]+", wanted)[0] for wanted in sys.argv[1:] if ">=" in wanted]
(Path(__file__).parents[1] / "installed").write_text(" ".join(names))
"""


def marked(nb: nbformat.NotebookNode) -> dict:
    """{cell: the text that it shows}, of those whose output must not drift."""
    return {
        cell.id: [
            o.get("text") or o.get("data", {}).get("text/plain") for o in notebooks.canonical_outputs(cell.outputs)
        ]
        for cell in nb.cells
        if cell.cell_type == "code" and "# NBVAL_CHECK_OUTPUT" in cell.source
    }


@pytest.fixture(scope="session")
def hub(tmp_path_factory, git, snapshot) -> Path:
    """A git configuration in which ADDRESS is this course, with that address in its pyproject.toml."""
    home = tmp_path_factory.mktemp("hub")
    course = snapshot(home / "course")
    pyproject = (course / "pyproject.toml").read_text(encoding="utf-8")
    lines = [f'repository = "{ADDRESS}"' if s.startswith("repository = ") else s for s in pyproject.split("\n")]
    (course / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    git(course, "commit", "--quiet", "--all", "--message", "with its address")
    configuration = home / "gitconfig"
    configuration.write_text(f'[url "{course.as_uri()}"]\n\tinsteadOf = {ADDRESS}\n')
    return configuration


@pytest.mark.each
@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_alone(path, hub, tmp_path):
    image, content = tmp_path / "image", tmp_path / "content"
    for file, text in (
        ("sitecustomize.py", IMAGE),
        ("pip/__init__.py", ""),
        ("pip/__main__.py", PIP),
        ("installed", ""),
    ):
        (image / file).parent.mkdir(parents=True, exist_ok=True)
        (image / file).write_text(text)
    content.mkdir()
    nb = notebooks.canonical(nbformat.read(path, as_version=4), path, ADDRESS)
    stored = marked(nb)
    environment = {key: value for key, value in os.environ.items() if key != "BYTES_FIRST"}
    NotebookClient(
        nb, timeout=notebooks.CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(content)}}
    ).execute(env={**environment, "PYTHONPATH": str(image), "GIT_CONFIG_GLOBAL": str(hub)})

    assert (image / "installed").read_text().split() == sorted(start.MISSING_ON_COLAB, reverse=True)
    assert [place.name for place in content.iterdir()] == ["bytes-first"]
    assert marked(nb) == stored
    (first,) = [cell for cell in nb.cells if cell.get("id") == notebooks.FIRST_CELL_ID]
    assert start.ON_COLAB in "".join(output.get("text", "") for output in first.outputs)
    said = json.dumps(first.outputs)
    for other in notebooks.notebooks():
        assert start.on_colab(ADDRESS, f"{other.parent.name}/{other.name}") in said
