"""What a learner has done is kept, outlives a damaged file and a full disk, and is nobody else's."""

import pytest

from instruments import diary
from instruments.diary import Guess, Points

pytestmark = [
    pytest.mark.each,  # every set takes milliseconds, and most say something of their own
    pytest.mark.usefixtures("own_diary"),
]


def test_kept_in_the_file_where_there_is_a_folder():
    diary.FILE.parent.mkdir()
    diary.keep_task("05.3", Points("failed", 0, 0, 5))
    diary.keep_task("05.3", Points("pending", 4, 1, 5))
    diary.keep_guess("bytes", Guess("How many?", 30.0, 33.6, "MB", "close"))
    diary._session = diary.Diary()  # a new session
    found = diary.read()
    assert found.tasks == {"05.3": Points("pending", 4, 1, 5)} and found.guesses["bytes"].guess == 30
    assert [path.name for path in diary.FILE.parent.iterdir()] == ["progress.json"]


def test_kept_for_the_session_where_there_is_none():
    diary.keep_task("05.3", Points("passed", 5, 0, 5))
    assert diary.read().tasks["05.3"].points == 5 and not diary.FILE.parent.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tasks": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_put_aside(content):
    diary.FILE.parent.mkdir()
    diary.FILE.write_bytes(content)
    diary.keep_task("05.1", Points("passed", 3, 0, 3))
    assert diary.read().tasks == {"05.1": Points("passed", 3, 0, 3)}
    assert (diary.FILE.parent / "progress (unreadable 1).json").read_bytes() == content


def test_two_notebooks_at_a_time_lose_nothing():
    diary.FILE.parent.mkdir()
    diary.keep_task("05.1", Points("passed", 3, 0, 3))
    diary._session = diary.Diary()  # as another process has it
    diary.keep_task("05.2", Points("passed", 3, 0, 3))
    assert set(diary.read().tasks) == {"05.1", "05.2"}


def test_a_disk_that_takes_nothing_stops_no_one(monkeypatch):
    diary.FILE.parent.mkdir()

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(diary, "write_whole", full)
    diary.keep_task("05.1", Points("passed", 3, 0, 3))
    assert diary.read().tasks["05.1"].points == 3
