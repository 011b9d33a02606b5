"""What the first cell of every notebook does once it has found the course: `start()`.

That cell runs this file by its path, before anything of the course can be imported, so only the standard library may
be imported at the top.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: The course's own packages. A module of another project that carries one of these names would be used in their place.
PACKAGES = ("instruments", "kernels", "widgets", "grading")

#: Where the course's notebooks lie, and what a name ends with there: 05_rmsnorm, 05_rmsnorm_exercise.
FOLDERS = {"lessons": "", "exercises": "_exercise", "solutions": "_solution"}

#: What a notebook needs before its second cell. Triton is not among them: backend.py says what works without it.
NEEDED = ("numpy", "torch", "matplotlib", "ipywidgets", "msgspec")

#: What Colab's images lack, triton where there is no GPU. What is there is never touched: replacing torch, triton or
#: ipywidgets breaks Colab's session.
MISSING_ON_COLAB = ("triton", "nbval", "msgspec", "junitparser")

ON_COLAB = """\
On Colab: keep your work with File > Save a copy in Drive.
The check cells grade as you go. For marks of a whole exercise, take it with File > Download > .ipynb,
upload it under Files (left), and run in a cell: !python -m grading.cli NAME.ipynb --report report"""


def notebook_of(lesson: str, folder: str) -> str:
    """Where a lesson has its notebook in one of FOLDERS: ("05_rmsnorm", "exercises") is at
    exercises/05_rmsnorm_exercise.ipynb."""
    return f"{folder}/{lesson}{FOLDERS[folder]}.ipynb"


def lesson_of(file: str) -> str:
    """The lesson that a notebook's file is called after: '05_rmsnorm' for each of 05_rmsnorm.ipynb,
    05_rmsnorm_exercise.ipynb and 05_rmsnorm_solution.ipynb."""
    return re.sub(rf"({'|'.join(FOLDERS.values())})\.ipynb$", "", file)


def start() -> None:
    """Make the course importable ahead of anything else, and say in one line what this machine can do."""
    refuse_strangers()
    sys.path[:] = [str(ROOT), *(folder for folder in sys.path if folder != str(ROOT))]
    importlib.invalidate_caches()
    colab = "google.colab" in sys.modules
    if colab:
        complete_colab()
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise ImportError(
            f"{', '.join(absent)}: not installed for this notebook's Python ({sys.executable}); run `make setup` in "
            "the course's folder, choose the Python of its .venv as the kernel, and run this cell again"
        )
    from instruments import backend

    print(backend.describe())
    keep_words_whole()
    if colab:
        print(ON_COLAB)
        show_links(repository())


def repository() -> str:
    """The address of the course's repository, empty until its owner has set it in pyproject.toml."""
    return pyproject()["tool"]["bytes-first"]["repository"]


def pyproject() -> dict:
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def on_github(address: str, file: str) -> str:
    """A file of the repository at `address` as a path on GitHub, OWNER/NAME/blob/main/FILE; '' if it is not there."""
    github = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", address)
    return f"{github[1]}/blob/main/{file}" if github else ""


def on_colab(address: str, notebook: str) -> str:
    """Where Colab opens a notebook of the repository at `address`; '' if that is not on GitHub."""
    path = on_github(address, notebook)
    return path and f"https://colab.research.google.com/github/{path}"


def refuse_strangers() -> None:
    """Raise ImportError where a loaded module has the name of one of the course's packages but is not that package."""
    for name in PACKAGES:
        if name not in sys.modules:
            continue
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        place = next((p for p in places if p), None)
        if place is None or not Path(place).resolve().is_relative_to(ROOT):
            raise ImportError(
                f"{name}: a module of this name that is not the course's is already loaded, from "
                f"{place or 'an unknown place'}; restart the kernel and run this cell before any other import"
            )


def complete_colab() -> None:
    """Install what Colab's image lacks and the course needs; failing is said. Then `!python -m grading.cli` works."""
    others = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder not in ("", str(ROOT))]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *others])
    absent = [name for name in MISSING_ON_COLAB if importlib.util.find_spec(name) is None]
    if not absent:
        return
    requirements = [line for line in pyproject()["project"]["dependencies"] if re.match(r"[\w.-]+", line)[0] in absent]
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *requirements], capture_output=True, text=True
    )
    if pip.returncode:
        why = pip.stderr.strip().rpartition("\n")[2]
        print(f"{', '.join(absent)} could not be installed; when pip can, run this cell again. It says: {why}")
    importlib.invalidate_caches()


def keep_words_whole() -> None:
    """Printed text breaks at spaces: JupyterLab's own style breaks it anywhere, in the middle of a number too."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:
        return
    style = "<style>.jp-OutputArea-output pre {word-break: normal; overflow-wrap: normal; overflow-x: auto}</style>"
    display({"text/html": style, "text/plain": ""}, raw=True)


def show_links(address: str) -> None:
    """Links to every notebook of the course, its glossary and its README, because those in a notebook's text lead
    nowhere from a copy in Drive.

    None without an address on GitHub.
    """
    if not on_github(address, ""):
        return
    from IPython.display import HTML, display

    lines = []
    for folder in FOLDERS:
        links = [
            f'<a href="{on_colab(address, f"{folder}/{path.name}")}" target="_blank">{path.stem.split("_")[0]}</a>'
            for path in sorted((ROOT / folder).glob("*.ipynb"))
        ]
        lines.append(f"{folder.capitalize()}: {' '.join(links)}")
    for name, file in (("Glossary", "docs/glossary.md"), ("README", "README.md")):
        lines.append(f'<a href="https://github.com/{on_github(address, file)}" target="_blank">{name}</a>')
    display(HTML("<br>".join(lines)))
