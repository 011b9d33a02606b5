"""What several test files share."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

for name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):  # a make that a test starts is nobody's child
    os.environ.pop(name, None)
os.environ["BYTES_FIRST_PROGRESS"] = os.devnull + "/none"  # what is checked and locked here is nobody's progress
collect_ignore = ["growth"]  # the toy lesson's files, which test_growth.py puts into a copy of the course


def pytest_addoption(parser):
    parser.addoption("--of-each", type=int, help="of a test's sets of parameters run so many, from first to last")


def pytest_collection_modifyitems(config, items):
    """With --of-each, leave out what says much the same: on a further version of Triton every test runs, but not with
    every set of parameters, unless it is marked `each`."""
    if not (most := config.getoption("--of-each")):
        return
    tests = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("each"):
            tests.setdefault((item.path, item.parent, item.originalname), []).append(item)
    left_out = set()
    for sets in tests.values():
        chosen = {round(place * (len(sets) - 1) / max(1, most - 1)) for place in range(most)}
        left_out |= {item for number, item in enumerate(sets) if number not in chosen}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium; without one the test is skipped on a learner's machine and fails in CI."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    reason = "Chromium is not installed, so the notebooks were not tried in a browser"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def git():
    """git(folder, *words) runs git in a folder; what it prints."""

    def git(folder: Path, *words) -> str:
        command = ["git", "-C", folder, "-c", "user.name=test", "-c", "user.email=test@localhost", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return git


@pytest.fixture(scope="session")
def snapshot(git):
    """snapshot(folder) makes a folder that is a git repository with the course in it, as the working tree has it."""

    def snapshot(folder: Path) -> Path:
        folder.mkdir()
        git(folder, "init", "--quiet")
        tree = Path(__file__).resolve().parents[1]
        git(folder, "--git-dir", folder / ".git", "--work-tree", tree, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "as it is")
        git(folder, "checkout", "--quiet", "--force")
        return folder

    return snapshot
