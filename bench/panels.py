"""How long each panel takes from a key press to its changed picture: p50 and p95, for this machine.

    python bench/panels.py

Measures as the browser's tests do (tests/browser/test_lab.py: JupyterLab in headless Chromium), prints the figures and
writes them with machine, versions and date to results/panels/latency.json. The aim is at most 70 ms at p95 on an idle
machine of two cores; nothing fails here.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from instruments.files import write_whole  # noqa: E402
from instruments.results import dumps  # noqa: E402

RESULTS = ROOT / "bench/results/panels/latency.json"  # a folder further down than the GPUs' files
VERSIONS = ("jupyterlab", "ipywidgets", "matplotlib", "pillow")


def machine() -> dict:
    """What the figures depend on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if sys.platform == "linux" else None
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "chromium": subprocess.check_output([chromium, "--version"], text=True).split()[1] if chromium else "",
        **{name: importlib.metadata.version(name) for name in VERSIONS},
    }


def measure(presses: int, only: str) -> dict:
    """{panel: {"p50 ms", "p95 ms", "presses"}}, as the browser's tests report them."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "latencies"
        test = f"{ROOT}/tests/browser/test_lab.py::test_sliders_move_caption_and_picture"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        env = {**os.environ, "LATENCIES": str(lines), "PRESSES": str(presses)}
        subprocess.run([*command, *(["-k", only] if only else [])], cwd=ROOT, env=env, check=True)
        panels = [json.loads(line) for line in lines.read_text().splitlines()]
    return {each.pop("name"): each for each in panels}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presses", type=int, default=60, help="key presses for each panel")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="as pytest's -k; nothing is written then")
    options = parser.parse_args()
    here = machine()
    panels = measure(options.presses, options.only)
    for name, figures in panels.items():
        print(f"{name:18}" + ", ".join(f"{what} {value}" for what, value in figures.items()))
    if not options.only:
        RESULTS.parent.mkdir(exist_ok=True)
        write_whole(RESULTS, dumps({"machine": here, "panels": panels}))


if __name__ == "__main__":
    main()
