"""What the first cell of every notebook does once it has found the course: `start()`.

That cell runs this file by its path, before anything of the course can be imported, so only the standard library may
be imported at the top.
"""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: The course's own packages. A module of another project that carries one of these names would be used in their place.
PACKAGES = ("instruments", "kernels", "widgets", "grading")

#: What a notebook needs before its second cell. Triton is not among them: backend.py says what works without it.
NEEDED = ("numpy", "torch", "matplotlib", "ipywidgets", "msgspec")

#: What Colab's image lacks. Its torch, triton and ipywidgets are never touched: replacing them breaks its session.
MISSING_ON_COLAB = ("nbval", "msgspec", "junitparser")


def start() -> None:
    """Make the course importable ahead of anything else, and say in one line what this machine can do."""
    refuse_strangers()
    sys.path[:] = [str(ROOT), *(folder for folder in sys.path if folder != str(ROOT))]
    importlib.invalidate_caches()
    if "google.colab" in sys.modules:
        complete_colab()
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise ImportError(
            f"{', '.join(absent)}: not installed for this notebook's Python ({sys.executable}); run `make setup` in "
            "the course's folder, choose the Python of its .venv as the kernel, and run this cell again"
        )
    from instruments import backend

    print(backend.describe())


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
    """Install what Colab's image lacks and the course needs; failing is said."""
    absent = [name for name in MISSING_ON_COLAB if importlib.util.find_spec(name) is None]
    if not absent:
        return
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *absent], capture_output=True, text=True)
    if pip.returncode:
        print(f"{', '.join(absent)} could not be installed: run this cell again when pip reaches its index.")
    importlib.invalidate_caches()
