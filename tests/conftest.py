"""What several test files share."""

import os
import shutil

import pytest

for name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):  # a make that a test starts is nobody's child
    os.environ.pop(name, None)
os.environ["BYTES_FIRST_PROGRESS"] = os.devnull + "/none"  # what is checked and locked here is nobody's progress
collect_ignore = ["growth"]  # the toy lesson's files, which test_growth.py puts into a copy of the course


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
