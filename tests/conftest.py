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
    parser.addoption("--rest", action="store_true", help="with --of-each: run just what that leaves out")


def pytest_collection_modifyitems(config, items):
    """With --of-each, leave out what says much the same: every test runs, but not with every set of parameters.

    A test marked `each` runs with all its sets, one marked `each(number)` with so many; one marked `slow` waits for
    --rest.
    """
    if not (most := config.getoption("--of-each")):
        return
    tests = {}
    for item in items:
        tests.setdefault((item.path, item.parent, getattr(item, "originalname", item.name)), []).append(item)
    chosen = set()
    for sets in tests.values():
        mark = sets[0].get_closest_marker("each")
        number = most if mark is None else mark.args[0] if mark.args else len(sets)
        places = {round(place * (len(sets) - 1) / max(1, number - 1)) for place in range(number)}
        chosen |= {sets[place] for place in places if not sets[place].get_closest_marker("slow")}
    left_out = [item for item in items if (item in chosen) == config.getoption("--rest")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if (item in chosen) != config.getoption("--rest")]


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


@pytest.fixture
def own_diary(tmp_path, monkeypatch):
    """A learner's diary for this test alone, kept for the session until the test makes the folder work/."""
    from instruments import diary  # which looks up its place once the variable above is set

    monkeypatch.setattr(diary, "FILE", tmp_path / "work" / "progress.json")
    monkeypatch.setattr(diary, "_session", diary.Diary())
