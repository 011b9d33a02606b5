import pytest

from instruments.contents import Lesson
from widgets.drawings import course_map

COURSE = {
    "00": Lesson("00 Start", "", 10, ()),
    "01": Lesson("01 One", "", 20, ("00",)),
    "01b": Lesson("01b Half", "", 0, ("01",)),
    "02": Lesson("02 Two", "", 30, ("00", "01b")),
}


def test_every_lesson_has_a_box():
    panel = course_map.course_map()
    for number, lesson in course_map.lessons().items():
        assert lesson.title.partition(":")[0].replace(". ", " ", 1) in panel.alt, number
    assert "01 The roofline" in panel.alt and "after 00" in panel.alt


def test_lessons_stand_below_what_they_build_on(monkeypatch):
    monkeypatch.setattr(course_map, "lessons", lambda: COURSE)
    depths = course_map._depths(COURSE)
    assert depths == {"00": 0, "01": 1, "01b": 2, "02": 3}
    assert ["00", ("00", "02", 1), ("00", "02", 2), "02"] in course_map._ways(COURSE, depths)
    assert "02 Two, 30 minutes, after 00 and 01b" in course_map.course_map().alt


def test_what_leads_to_a_lesson_is_marked(monkeypatch):
    monkeypatch.setattr(course_map, "lessons", lambda: COURSE)
    assert course_map.below(COURSE, "01b") == {"00", "01", "01b"}
    assert "orange: Half and what it builds on, 30 minutes" in course_map.course_map("01b").alt
    assert course_map.course_map("01b").png != course_map.course_map("none").png


def test_rows_are_ordered_so_that_arrows_do_not_cross():
    crossed = {n: Lesson(f"{n} L", "", 0, needs) for n, needs in (("0", ()), ("1", ()), ("2", ("1",)), ("3", ("0",)))}
    rows = course_map._ordered(crossed, course_map._depths(crossed))
    assert rows in ([["0", "1"], ["3", "2"]], [["1", "0"], ["2", "3"]])


def test_lessons_that_need_each_other_are_refused():
    with pytest.raises(ValueError, match="build on each other"):
        course_map._depths({"0": Lesson("0 A", "", 0, ("1",)), "1": Lesson("1 B", "", 0, ("0",))})
