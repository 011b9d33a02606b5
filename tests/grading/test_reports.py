"""The forms that other programs read, from records of every kind: each in the reader it is meant for."""

import base64
import csv
import io
import json
import math
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import jsonschema
import junitparser
import msgspec
import pytest

from grading import formats, pages, report
from grading.record import Environment, Place, Submission, Verdict

STRANGE = "a\x00\x1b[31m<b>&'\"\ud800 é"
POINTS = {"05.1": 3, "05.2": 4, "05.3": 5, "05.4": 5, "05.5": 4, "05.6": 4}
SPEED = 3  # of the points above, for speed
replace = msgspec.structs.replace


def verdict(name="05.1", status="passed", **fields):
    most = POINTS[name]
    pending = int(status == "pending")
    points = most - pending if status in ("passed", "pending") else 0
    return Verdict(
        **{
            "id": name,
            "title": f"Task {name}",
            "status": status,
            "points": points,
            "pending_points": pending,
            "max_points": most,
            **fields,
        }
    )


def graded(learner="jane", tasks=None, name="a.ipynb", **fields):
    tasks = [verdict(task) for task in POINTS] if tasks is None else tasks
    sums = {name: sum(getattr(task, name) for task in tasks) for name in ("points", "pending_points", "max_points")}
    return Submission(
        **{
            "path": f"class/{learner}/{name}",
            "file": f"/home/me/class/{learner}/{name}",
            "learner": learner,
            "exercise": "05_rmsnorm",
            "status": "pending" if sums["pending_points"] else "graded",
            "tasks": tasks,
            "gradable_points": sums["max_points"] - SPEED,
            "isolation": "network",
            "seed": "7",
            "seconds": 3.2,
            "environment": Environment(mode="interpreted", device="cpu", torch="2", triton="3"),
            **sums,
            **fields,
        }
    )


def without_a_mark(learner, status, why, **fields):
    return Submission(
        path=f"class/{learner}/a.ipynb",
        file=f"/home/me/class/{learner}/a.ipynb",
        learner=learner,
        status=status,
        notes=[why],
        **{"exercise": "", **fields},
    )


@pytest.fixture(scope="module")
def records():
    """A pass, a failure with a place, every status, strange text, and files that could not be graded."""
    mixed = [
        verdict(task, status, hint=STRANGE, kind=kind)
        for task, status, kind in zip(
            POINTS,
            ("failed", "not_attempted", "pending", "failed", "passed", "failed"),
            ("wrong", "", "", "tail", "", ""),
        )
    ]
    mixed[3].place = Place(
        output="y",
        first=[2, 4],
        expected=1.0,
        got=math.nan,
        wrong=0.001,
        error=math.inf,
        limit=1e-5,
        shape=[3, 2],
        map=[[0, 0.5], [1, 0], [0, 0]],
    )
    failed = [verdict(task, "ungraded", hint="no kernel could start") for task in POINTS]
    return [
        graded(),
        graded("=1+1", mixed, notes=[STRANGE]),
        without_a_mark("joe", "unreadable", "class/joe/a.ipynb: not a notebook"),
        without_a_mark("kim", "ungraded", "no kernel could start", exercise="05_rmsnorm", tasks=failed, max_points=25),
        graded(name="b.ipynb"),
    ]


@pytest.fixture(scope="module")
def written(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    report.write(folder, records, ["class/scan.pdf"])
    return folder


def test_results_json_holds_to_its_schema(records):
    schema = json.loads(report.SCHEMA.read_text(encoding="utf-8"))
    assert schema == report.schema(), "run python -m grading.report"
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    content = json.loads(report.files(records)["results.json"])
    validator.validate(content)
    for spoil in (
        lambda c: c.pop("submissions"),
        lambda c: c["submissions"][0].pop("status"),
        lambda c: c["submissions"][0]["tasks"][0].update(status="fine"),
        lambda c: c["submissions"][0].update(points=-1),
        lambda c: c["submissions"][0].update(extra=1),
        lambda c: c.update(schema_version=report.SCHEMA_VERSION + 1),
    ):
        broken = json.loads(json.dumps(content))
        spoil(broken)
        assert not validator.is_valid(broken)


def test_junit_is_read_by_junitparser(written):
    suites = junitparser.JUnitXml.fromfile(str(written / "junit.xml"))
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (25, 3, 7, 1)
    cases = [case for suite in suites for case in suite]
    assert len(cases) == 25 and cases[0].classname == "05_rmsnorm" and cases[0].name.startswith("05.1 ")
    failed = next(case for case in cases if case.result and isinstance(case.result[0], junitparser.Failure))
    assert "\x00" not in failed.result[0].message and "<b>&" in failed.result[0].message


OUTCOMES = """
import pytest

def test_passes(record_property, record_testsuite_property):
    record_testsuite_property("learner", "jane")
    record_property("points", 1)
    print("said")

def test_fails():
    assert False

def test_is_skipped():
    pytest.skip("not attempted")

@pytest.fixture
def broken():
    raise OSError

def test_has_an_error(broken):
    pass
"""


def test_junit_has_the_elements_that_pytest_writes(written, tmp_path):
    """Held to a file of pytest's own, so that whatever reads that one reads ours."""
    (tmp_path / "test_outcomes.py").write_text(OUTCOMES)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "test_outcomes.py",
            "--junitxml",
            "own.xml",
            "-o",
            "junit_family=xunit2",
            "-o",
            "junit_logging=all",
        ],
        cwd=tmp_path,
        capture_output=True,
    )
    own = ElementTree.parse(tmp_path / "own.xml").getroot()
    root = ElementTree.parse(written / "junit.xml").getroot()
    assert _grammar(root)[0] <= _grammar(own)[0]  # which element stands in which
    assert _grammar(root)[1] <= _grammar(own)[1] | BESIDE  # which attribute
    for suite in root.iter("testsuite"):
        cases = suite.findall("testcase")
        assert {"name", "time", *COUNTS} <= set(suite.attrib)
        assert int(suite.get("tests")) == len(cases)
        for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.get(count)) == sum(case.find(tag) is not None for case in cases)
        for case in cases:
            assert {"classname", "name", "time"} <= set(case.attrib)


COUNTS = ("tests", "failures", "errors", "skipped")
#: attributes that JUnit knows and pytest leaves out
BESIDE = {("failure", "type"), ("error", "type"), ("testsuites", "time"), *(("testsuites", count) for count in COUNTS)}


def _grammar(root) -> tuple:
    """{(element, child)} and {(element, attribute)} of a document."""
    return (
        {(element.tag, child.tag) for element in root.iter() for child in element},
        {(element.tag, name) for element in root.iter() for name in element.attrib},
    )


def test_gradescope(written):
    found = {p.parent.name: json.loads(p.read_text()) for p in (written / "gradescope").rglob("results.json")}
    assert set(found) == {"jane", "jane+2", "1_1", "joe"}  # none for what the grader could not do
    for form in found.values():
        assert isinstance(form["score"], int) and form["visibility"] == "visible" and form["output_format"] == "text"
        assert form["score"] == sum(test["score"] for test in form["tests"])
        for test in form["tests"]:
            assert 0 <= test["score"] <= test["max_score"] and test["status"] in ("passed", "failed")
            assert test["visibility"] == "visible" and test["output"] and isinstance(test["name"], str)
    assert "not a notebook" in found["joe"]["output"] and found["jane"]["score"] == 25


@pytest.mark.parametrize(
    "which, score, words",
    [
        ((0, 2), 25, "left aside: class/joe/a.ipynb: not a notebook"),
        ((0,), 25, ""),
        ((2,), 0, "not a notebook"),
        ((0, 4), 0, "More than one notebook of 05_rmsnorm was handed in (class/jane/a.ipynb, class/jane/b.ipynb)"),
        ((2, 3), None, ""),
    ],
    ids=["one and a stray file", "one", "a stray file", "two", "ungraded"],
)
def test_gradescopes_one_result_for_all_that_a_learner_uploaded(which, score, words, records):
    form = formats.gradescope_together([records[i] for i in which])
    assert (form and form["score"]) == score and (not form or words in form["output"])
    stored = json.loads(report.files([records[i] for i in which])["results.json"])["submissions"]
    assert formats.gradescope_together(stored) == form  # as grading/deploy/gradescope/run_autograder has them


def test_gradescope_of_two_exercises_is_told_so(records):
    said = formats.gradescope_together([records[0], replace(records[0], exercise="01_roofline")])["output"]
    assert "different exercises" in said and "More than one" not in said


def test_gradescope_of_one_submission_lies_where_gradescope_wants_it(records, tmp_path):
    report.write(tmp_path, records[:1])
    assert [p.name for p in (tmp_path / "gradescope").iterdir()] == ["results.json"]


def test_classroom(written, records):
    line = (written / "classroom.b64").read_text().strip()
    form = json.loads(base64.b64decode(line))
    assert form == json.loads((written / "classroom.json").read_text())
    assert form["version"] == 1 and form["status"] == "error" and form["max_score"] == 100 and "\n" not in line
    for test in form["tests"]:
        assert {"name", "status", "score", "message", "test_code", "filename", "line_no", "execution_time"} == set(test)
        assert test["status"] in ("pass", "fail", "error") and isinstance(test["score"], int)
    assert formats.classroom(records[:1])["status"] == "pass"
    assert sum(test["score"] for test in formats.classroom(records[:1])["tests"]) == 25


def test_classroom_gets_a_zero_with_its_reason_where_there_is_nothing_to_grade(records, tmp_path):
    """A push without a notebook (status 2), or with an unreadable one; but none where the grader failed."""
    for status, which in ((2, None), (1, 2)):
        if which:
            report.write(tmp_path, [records[which]])
        assert formats.classroom_step(tmp_path, status, 25, "grade: no notebook in this folder") == 0
        form = json.loads(base64.b64decode((tmp_path / "classroom.b64").read_text()))
        assert (form["max_score"], [test["score"] for test in form["tests"]], form["status"]) == (25, [0], "error")
        assert ("not a notebook" if which else "no notebook in this folder") in form["tests"][0]["message"]
    report.write(tmp_path, [records[0]])
    before = (tmp_path / "classroom.b64").read_text()
    assert formats.classroom_step(tmp_path, 0, 25, "") == 0 and (tmp_path / "classroom.b64").read_text() == before
    report.write(tmp_path, [records[3]])
    assert formats.classroom_step(tmp_path, 1, 25, "") == 1


def test_the_gradebook_has_blanks_for_what_has_no_mark_and_no_formulas(written):
    rows = list(csv.DictReader(io.StringIO((written / "grades.csv").read_text(encoding="utf-8-sig"))))
    by_file = {row["file"]: row for row in rows}
    assert by_file["class/jane/a.ipynb"]["points"] == "25" and by_file["class/jane/a.ipynb"]["05.1"] == "3"
    assert (written / "grades.csv").read_bytes().startswith("\ufefflearner,".encode())  # for Excel
    for name in ("joe", "kim"):
        assert by_file[f"class/{name}/a.ipynb"]["points"] == by_file[f"class/{name}/a.ipynb"]["05.1"] == ""
    assert any(row["learner"] == "'=1+1" for row in rows)
    assert not any(value[:1] in "=+-@" for row in rows for value in row.values() if value)


def test_pages(written):
    page = (written / "index.html").read_text(encoding="utf-8")
    assert "5 submissions: 2 graded, 1 graded with pending points, 1 unreadable, 1 ungraded" in page
    assert "jane handed in 05_rmsnorm 2 times" in page and "<li>joe: not a notebook" in page
    assert "Left aside, because they are no notebooks: class/scan.pdf" in page and "Learner code ran with" in page
    assert {p.name for p in (written / "learners").iterdir()} == {"jane.html", "1_1.html", "joe.html", "kim.html"}
    for name in ("jane", "1_1", "joe", "kim"):
        assert f'href="learners/{name}.html"' in page
    theirs = (written / "learners" / "1_1.html").read_text(encoding="utf-8")
    assert "<svg" in theirs and "y[2, 4]" in theirs and "<td class=number>nan" in theirs and "0.10%" in theirs
    assert "<b>&'" not in theirs and "&lt;b&gt;" in theirs
    assert "not a zero" in (written / "learners" / "kim.html").read_text(encoding="utf-8")


def test_one_word_for_what_waits_for_a_gpu(written, records):
    """Pending, on every page and in every form; and how many it is, in good English."""
    page, theirs = ((written / name).read_text(encoding="utf-8") for name in ("index.html", "learners/1_1.html"))
    assert "1 passed, 1 pending, 3 failed" in page and "right so far" not in page + theirs
    assert "pending, 4 of 5 points (right; 1 point waits for a GPU)" in theirs
    assert formats.waiting(verdict(pending_points=2)) == "right; 2 points wait for a GPU"
    assert "isolation" not in theirs and records[0].isolation not in theirs  # "network" reads as its opposite


def test_points_that_can_be_earned_here(written):
    rows = list(csv.DictReader(io.StringIO((written / "grades.csv").read_text(encoding="utf-8-sig"))))
    assert {row["gradable_points"] for row in rows} == {"", "22"}
    assert "22 of the 25 points of 05_rmsnorm" in (written / "index.html").read_text(encoding="utf-8")


def test_what_failed_most_is_said_as_in_the_hints():
    """Equal faults with other numbers are one, and the learners' names stand beside it."""

    def failed(learner, hint):
        return graded(learner, [verdict(status="failed", hint=hint)])

    page = pages.class_page(
        [
            failed(
                "ann", 'Case "3 x 10 bf16": program 2 reads x[3000], outside (24 lanes), 4 more times. Mask every load.'
            ),
            failed(
                "bob", 'Case "1 x 7 fp32": program 0 reads x[7], outside (1 lanes), 1,200 more times. Mask every load.'
            ),
            failed("cid", "each row is off by a factor (0.5): 16-bit rounding, in fp32. Convert first."),
        ]
    )
    assert "program … reads x[…], outside, … more times (ann, bob)" in page and "Mask every load" not in page
    assert "each row is off by a factor: 16-bit rounding, in fp32 (cid)" in page


def test_answers_as_published_are_counted_by_learner():

    def likened(learner, **like):
        return graded(learner, [verdict(task, likeness=f"{learner}{task}", **like) for task in POINTS])

    page = pages.class_page([likened("ann", like_solution=True), likened("bob", like_solution=False)])
    assert "<li>ann: 6 of 6 as published (05_rmsnorm)" in page and "bob: " not in page
    assert "no folder solutions/" not in page
    assert "no folder solutions/ here" in pages.class_page([likened("ann"), likened("bob")])


def test_a_report_of_others_is_known(written, tmp_path):
    """By learner, and by file where a learner is called otherwise, as where a folder of a class is given alone."""
    jane = [SimpleNamespace(learner="jane", place="/elsewhere")]
    assert report.others(written, jane) == (["=1+1", "joe", "kim"], 5)
    same_file = [SimpleNamespace(learner="a", place="/home/me/class/jane/a.ipynb")]
    assert report.others(written, same_file) == (["=1+1", "joe", "kim", "jane"], 5)
    assert report.others(written / "absent", jane) == ([], 0)
    report.write(tmp_path, [graded(STRANGE)])
    assert report.others(tmp_path, [SimpleNamespace(learner=STRANGE, place="")]) == ([], 1)


def test_pages_of_learners_never_share_a_file():
    names = pages.slugs(
        [graded(name) for name in ("a b", "a_b", "A_B", "...", "", "é" * 300, "é", "e\u0301", "\U00020000" * 90)]
    )
    assert len({name.lower() for name in names.values()}) == 9
    assert all(len(f"{name}.html".encode()) < 255 for name in names.values())


def test_gradescopes_folders_are_one_for_each_submission():
    found = report.files([graded("jane"), graded("jane", name="b.ipynb"), graded("jane.2"), graded("jane+2")])
    assert len([name for name in found if name.startswith("gradescope/")]) == 4


def page_of(place):
    return pages.learner_page("jane", [graded(tasks=[verdict(status="failed", place=place)])])


def test_a_picture_says_what_a_square_stands_for():
    place = Place(output="y", first=[1], expected=1.0, got=2.0, wrong=0.5, shape=[64, 100], map=[[0, 1], [1, 0]])
    page = page_of(place)
    assert page.count("<rect") == 4 and "a square stands for 32 x 50 elements;" in page and "50%" in page
    assert "13 x 50 elements at most" in page_of(replace(place, shape=[25, 100]))
    everywhere = page_of(replace(place, wrong=1.0))
    assert "<svg" not in everywhere and "every element of y is wrong" in everywhere
    assert "<svg" not in page_of(Place()) and "first wrong" not in page_of(Place())


def test_a_real_failure_has_a_picture():
    from grading_tools import answers, edited, verdict_of

    found = verdict_of("05.2", edited(answers("05_rmsnorm")["05.2"], ("return ", "return 3 * ")))
    everywhere = page_of(found.place)
    assert found.status == "failed" and "<svg" not in everywhere and "every element of" in everywhere, found
    assert "<svg" in page_of(replace(found.place, wrong=0.5))


def test_a_wrong_number_has_its_call_and_both_values():
    page = page_of(
        Place(
            call="f(n=3)",
            yours={"bytes": 1234567, "time": math.inf, "name": None},
            right={"bytes": 7, "time": 1 / 3, "name": "x"},
        )
    )
    assert re.search(r"f\(n=3\).*yours.*right\s*<tr><td>bytes<td[^>]*>1234567<td[^>]*>7\s*<", page)
    assert "<td class=number>inf<td class=number>0.333333" in page and "<td class=number>None<td class=number>x" in page


def test_the_learners_page_reads_well(records):
    tasks = [
        verdict(task, "failed", hint="Use `a < b`.", proved=["3 cases right"], unproved=["what a kernel shows"])
        for task in POINTS
    ]
    page = pages.learner_page("jane", [graded(tasks=tasks)])
    assert page.count("Repair the answer cell") == 1 and "<code>a &lt; b</code>" in page
    assert page.count("what a kernel shows") == 1 and page.count("3 cases right") == len(tasks)
    assert "kernels ran in Triton&#39;s interpreter" in page
    assert 'title="interpreted on cpu, torch 2, triton 3"' in page
    assert "Repair the answer cell" not in pages.learner_page("jane", records[:1])


def test_several_exercises_of_one_learner_have_a_total():
    pending = [verdict("05.1", "pending"), verdict("05.2", "failed")]
    two = [graded(), graded(tasks=pending, exercise="04_fusion", name="b.ipynb")]
    page, table = pages.learner_page("jane", two), pages.class_page([*two, graded("joe")])
    assert "In 2 exercises: 27 of 32 points, 1 pending." in page
    assert re.search("2 exercises<td>\\s*<td class=number>27\\s*<td class=number>1\\s*<td class=number>32\\s", table)
    assert table.count('class="total"') == 1
    more = [*two, without_a_mark("jane", "unreadable", "not a notebook")]
    assert "In 2 exercises, 1 more without a mark: 27" in pages.learner_page("jane", more)
    for undecided in ([graded()], [graded(), graded(name="b.ipynb")], [*two, graded(name="c.ipynb")], more[1:]):
        assert pages.total(undecided) is None and " exercises" not in pages.learner_page("jane", undecided)


def test_what_learners_wrote_is_cut_and_harmless():
    """A 30 MB error text, notes without end, and names that move the cursor, end a line or turn text around."""
    name = "\x1b]0;x\x07\n\u202e\x9b2J\udcff<script>" + "n" * 5000
    flood = Place(call="f()", yours={"a": "w" * 10**7}, right={"a": 1.0})
    tasks = [
        verdict(
            task, "failed", hint="ValueError: " + "\x1b[2J" * 10**6, kind="error", place=flood, proved=["p" * 10**7]
        )
        for task in POINTS
    ]
    hostile = [
        graded(name, tasks, notes=[STRANGE * 1000] * 10**4),
        graded(name, tasks[:1], exercise="04_fusion"),
        replace(without_a_mark(name, "ungraded", "u" * 10**7), exercise=""),
    ]
    found = report.files(hostile, [name])
    assert sum(map(len, found.values())) < 2e6 and "and 9,980 more notes" in found["results.json"]
    for file, text in found.items():
        assert not formats.CONTROL.search(text.removeprefix("\ufeff")), file
        assert "<script" not in text or file.endswith((".json", ".csv")), file
    ElementTree.fromstring(found["junit.xml"])
    rows = list(csv.reader(io.StringIO(found["grades.csv"])))
    assert len(rows) == 4 and max(len(cell) for row in rows for cell in row) < 32767  # which Excel takes
    assert formats.line("a\nb\tc\x1b") == r"a\nb\tc\x1b" and len(formats.reason(hostile[2])) < 3000


def test_learners_whose_names_look_alike_stay_apart():
    found = report.files([graded("a\x1b"), graded(r"a\x1b"), graded("n" * 2000 + "1"), graded("n" * 2000 + "2")])
    assert len({s["learner"] for s in json.loads(found["results.json"])["submissions"]}) == 4
    assert len([name for name in found if name.startswith("learners/")]) == 4


def test_results_json_gives_the_records_back(records):
    """Also where a number is one that JSON lacks: its name stands there."""
    got = msgspec.json.decode(report.files(records)["results.json"], type=report.Results)
    assert (got.schema_version, got.submissions) == (report.SCHEMA_VERSION, formats.told(records))
    place = got.submissions[1].tasks[3].place
    assert (place.got, place.error, place.expected) == ("nan", "inf", 1.0) and got.submissions[0] == records[0]


def test_junit_keeps_suites_that_are_equal():
    assert len(junitparser.JUnitXml.fromstring(formats.junit([graded(), graded()]).encode())) == 2


def test_an_installed_course_has_its_templates():
    root = report.SCHEMA.parents[1]
    shipped = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["grading"]
    found = {path for pattern in shipped for path in report.SCHEMA.parent.glob(pattern)}
    assert {report.SCHEMA, *report.SCHEMA.with_name("templates").iterdir()} == found


def test_a_fault_keeps_its_function_and_loses_its_case_and_counts():
    hint = (
        'In `sectors`: Case "bf16": lines were counted. A sector has 32 bytes. 3 of 8 cases are right; all have to be.'
    )
    assert pages.fault(hint) == "In `sectors`: lines were counted"
    assert pages.fault("no program ran. 0 of 8 cases are right; all have to be.") == "no program ran"


def test_an_empty_report_can_be_written(tmp_path):
    report.write(tmp_path, [])
    assert json.loads((tmp_path / "results.json").read_text())["submissions"] == []
