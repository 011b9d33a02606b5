"""The instructor's two tables: what is read from them, what is told of a line that is wrong, what becomes of points."""

import pytest
from test_reports import graded, unmarked

from grading import tables
from grading.record import Remark
from instruments.files import BadTable

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


def table(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        "ann\nbob\n",
        "Learner\nann\nbob\n",
        "\ufeffLast name;Login\r\nLee;ann\r\nKim;bob\r\n;;\r\n\r\n",
        "7\tann\n8\tbob\t\n",
        '"ann"\n"bob"',
        "SIS User ID,Name\nann,Ann Lee\nbob,\n",
    ],
    ids=["names", "a head", "semicolons, a mark and empty lines", "tabs", "quotes", "ids before names"],
)
def test_the_column_with_the_learners_is_the_roster(content, tmp_path):
    assert tables.roster(table(tmp_path, content), ["ann", "zoe", "bob"]) == ["ann", "bob"]


def test_without_a_known_learner_the_first_column_is_the_roster(tmp_path):
    assert tables.roster(table(tmp_path, "name,id\nann,1\nbob,2\n"), []) == ["ann", "bob"]


@pytest.mark.parametrize(
    "content, said",
    [
        ("", "no names in it"),
        ("name\n", "no names in it"),
        ("ann\n\nAnn \n", "line 3: 'Ann' is there already, in --roster .*table.csv, line 1"),
        ("x,ann\ny\n", "line 2: no name in column 2"),
        ('ann\n"bob\n', "line 2: unexpected end of data"),
        (b"J\xf6rg\n", "cannot be read as CSV in UTF-8"),
    ],
)
def test_a_roster_that_cannot_be_used_is_told_by_its_line(content, said, tmp_path):
    with pytest.raises(BadTable, match=f"^--roster .*table.csv.*{said}"):
        tables.roster(table(tmp_path, content), ["ann"])
    with pytest.raises(BadTable, match="--roster .*absent.csv: cannot be read"):
        tables.roster(tmp_path / "absent.csv", [])


def test_remarks_are_read_as_a_spreadsheet_leaves_them(tmp_path):
    content = 'Learner,on,Points,comment\nann,5.3,2,\nbob,05_rmsnorm,-1,"late, as agreed"\n,,,\nkim,05b.1,,Fine.\n'
    assert tables.remarks(table(tmp_path, content)) == [
        Remark(learner="ann", on="05.3", points=2),
        Remark(learner="bob", on="05_rmsnorm", points=-1, comment="late, as agreed"),
        Remark(learner="kim", on="05b.1", comment="Fine."),
    ]
    assert tables.remarks(tmp_path / "absent.csv") == []


@pytest.mark.parametrize(
    "line, said",
    [
        ("ann,05.9,1", "'05.9' is no task and no exercise"),
        ("ann,99.1,1", "'99.1' is no task"),
        ("ann,,1", "'' is no task"),
        ("ann,05_rms,1", "'05_rms' is no task"),
        ("ann,05.3,half", "points"),
        ("ann,05.3,1.5", "points"),
        (",05.3,1", "learner"),
        ("ann,05.3,1,late, as agreed", "a comment with a comma needs quotes"),
        ('ann,05.3,1,"late', "unexpected end of data"),
    ],
)
def test_a_remark_that_cannot_be_used_is_told_by_its_line(line, said, tmp_path):
    path = table(tmp_path, f"learner,on,points,comment\nbob,05.3,1,good\n{line}\n")
    with pytest.raises(BadTable, match=f"^{path}, line 3: .*{said}"):
        tables.remarks(path)


def test_points_by_hand_take_the_place_of_earlier_ones_and_are_never_less_than_all():
    on = [
        Remark(learner="JANE ", on="05.3", points=2, comment="Neat."),
        Remark(learner="jane", on="05_rmsnorm", points=1),
    ]
    once = tables.results([graded()], [], [], on)
    again = tables.results(once.submissions, [], [], on)
    assert again == once and (once.submissions[0].points, once.submissions[0].manual_points) == (28, 3)
    assert once.submissions[0].remarks == on
    none = tables.results(again.submissions, [], [], [])
    assert (none.submissions[0].points, none.submissions[0].manual_points, none.submissions[0].remarks) == (25, 0, [])
    least = tables.results([graded()], [], [], [Remark(learner="jane", on="05.1", points=-99)])
    assert (least.submissions[0].points, least.submissions[0].manual_points) == (0, -25)


def test_a_remark_on_no_mark_is_told_and_changes_nothing():
    on = [Remark(learner="jane", on="01.1", points=2), Remark(learner="joe", on="05.1", comment="Ask me.")]
    found = tables.results([graded(), unmarked("joe", "unreadable", "damaged")], [], [], on)
    assert found.remarks_without_a_mark == ["jane, 01.1: +2 points", "joe, 05.1: Ask me."]
    assert [record.points for record in found.submissions] == [25, 0]


def test_who_is_missing_and_who_is_not_on_the_roster():
    """A name from a Mac's zip has its accents apart from its letters."""
    records = [graded("Jo\u0308rg"), unmarked("kim", "unreadable", "damaged"), graded("zoe")]
    found = tables.results(records, [], ["J\u00d6RG", "Kim", "Ann  Lee"], [])
    assert (found.handed_in_nothing, found.not_on_the_roster) == (["Ann  Lee"], ["zoe"])
    found = tables.results(records, [], [], [])
    assert found.handed_in_nothing == found.not_on_the_roster == []


def test_submissions_stand_in_the_order_of_the_alphabet():
    found = tables.results([graded("Zoe"), graded("ann"), graded("Bob")], [], [], [])
    assert [record.learner for record in found.submissions] == ["ann", "Bob", "Zoe"]
