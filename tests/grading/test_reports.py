"""What a report holds, from records of every kind: results.json, the pages, and other programs' forms."""

import base64
import csv
import io
import json
import math
import re

import jsonschema
import junitparser
import msgspec
import pytest

from grading import adapters, pages, report
from grading.facts import Environment
from grading.record import Place, Results, Submission, Verdict
from grading.wording import TEXT, clean

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

STRANGE = "a\x00\x1b[31m<b>&'\"\ud800 é‮"
SHOWN = r"a\x00\x1b[31m<b>&'" + '"' + r"\ud800 é\u202e"
POINTS = {"05.1": 3, "05.2": 4, "05.3": 5, "05.4": 5, "05.5": 4, "05.6": 4}


def verdict(name="05.1", status="passed", **fields):
    most, pending = POINTS[name], int(status == "pending")
    points = most - pending if status in ("passed", "pending") else 0
    own = dict(id=name, title=f"Task {name}", status=status, points=points, pending_points=pending, max_points=most)
    return Verdict(**{**own, **fields})


def graded(learner="jane", tasks=None, name="a.ipynb", **fields):
    tasks = [verdict(task) for task in POINTS] if tasks is None else tasks
    sums = {name: sum(getattr(task, name) for task in tasks) for name in ("points", "pending_points", "max_points")}
    own = dict(
        path=f"{learner}/{name}",
        file=f"/home/me/class/{learner}/{name}",
        learner=learner,
        exercise="05_rmsnorm",
        status="pending" if sums["pending_points"] else "graded",
        tasks=tasks,
        gradable_points=sums["max_points"] - 3,
        isolation="network",
        environment=Environment(mode="interpreted", device="cpu", torch="2", triton="3"),
    )
    return Submission(**{**own, **sums, **fields})


def unmarked(learner, status, why, **fields):
    own = dict(path=f"{learner}/a.ipynb", file=f"/home/me/class/{learner}/a.ipynb", learner=learner, exercise="")
    return Submission(**{**own, "status": status, "notes": [why], **fields})


@pytest.fixture(scope="module")
def records():
    """A pass twice, a failure with a place, every status, strange text, and files that could not be graded."""
    states = ("failed", "not_attempted", "pending", "failed", "passed", "failed")
    mixed = [verdict(task, status, hint=STRANGE, diagnosis="values") for task, status in zip(POINTS, states)]
    mixed[3].place = Place(output="y", first=[2, 4], expected=1.0, actual=math.nan, wrong=0.001, error=math.inf)
    mixed[3].proved, mixed[3].unproved = ["`y` is new in each call"], ["the compiled kernel"]
    mixed[5].place = Place(output="bytes", expected=24, actual="inf", wrong=1.0)
    ungraded = [verdict(task, "ungraded", hint="no kernel could start") for task in POINTS]
    return [
        graded(),
        graded("=1+1", mixed, notes=[STRANGE]),
        unmarked("joe", "unreadable", "joe/a.ipynb: not a notebook"),
        unmarked("kim", "ungraded", "no kernel could start", exercise="05_rmsnorm", tasks=ungraded, max_points=25),
        graded(name="b.ipynb"),
        graded("a/b"),
        graded("A b", exercise="01_roofline"),
    ]


@pytest.fixture(scope="module")
def written(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    report.write(folder, Results(submissions=records, left_aside=["scan.pdf"]))
    return folder


# ---------------------------------------------------------------- results.json


def test_results_json_holds_to_its_schema(written, records):
    schema = json.loads(report.SCHEMA.read_text(encoding="utf-8"))
    assert schema == report.schema(), "run python -m grading.report"
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    content = json.loads((written / "results.json").read_text())
    validator.validate(content)
    assert content["schema_version"] == 6 and content["left_aside"] == ["scan.pdf"]
    assert report.earlier(written).submissions == list(map(clean, records))
    for spoil in (
        lambda c: c.pop("submissions"),
        lambda c: c["submissions"][0].pop("status"),
        lambda c: c["submissions"][0]["tasks"][0].update(status="fine"),
        lambda c: c["submissions"][0].update(points=-1),
        lambda c: c["submissions"][0].update(extra=1),
        lambda c: c.update(schema_version=5),
    ):
        broken = json.loads(json.dumps(content))
        spoil(broken)
        assert not validator.is_valid(broken)


def test_numbers_that_are_not_finite_are_strings(written):
    place = json.loads((written / "results.json").read_text())["submissions"][1]["tasks"][3]["place"]
    assert (place["expected"], place["actual"], place["error"]) == (1.0, "nan", "inf")
    again = report.earlier(written).submissions[1].tasks[3].place
    assert again.actual == "nan" and again.expected == 1.0


def test_untrusted_text_is_cut_and_shown():
    record = clean(graded(learner="a\nb\x07" + "x" * 2000, notes=[STRANGE, "y" * 10_000] + ["z"] * 50))
    assert record.learner.startswith(r"a\nb\x07xxx") and len(record.learner) < 600
    assert record.notes[0] == SHOWN and len(record.notes) == 21 and record.notes[-1] == "and 32 more notes"
    assert len(record.notes[1]) < TEXT + 50 and "10,000 characters" in record.notes[1]
    assert clean(clean(record)).notes[1] == record.notes[1]


def test_a_report_of_another_version_is_none(tmp_path):
    (tmp_path / "results.json").write_text('{"schema_version": 5, "submissions": [], "left_aside": ["x"]}')
    assert report.earlier(tmp_path) == Results() == report.earlier(tmp_path / "absent")


# ---------------------------------------------------------------- pages


def test_the_class_page_says_who_has_what_and_what_needs_a_person(written):
    page = (written / "index.html").read_text()
    for words in (
        "7 submissions,\n5 graded",
        "joe, joe/a.ipynb: not a notebook",
        "kim, 05_rmsnorm: no kernel could start",
        "jane, 05_rmsnorm: handed in more than once (jane/a.ipynb, jane/b.ipynb)",
        "Left aside, because they are no notebooks: scan.pdf",
        '<a href="learners/1_1.html">=1+1</a>',
        "<h2>01_roofline</h2>",
        "level network, the strongest",
    ):
        assert words in page, words
    assert page.count("handed in more than once") == 1
    assert "more than once" not in class_page([graded("Ann"), graded("ann")])
    for link in re.findall(r'href="([^"]+)"', page):
        assert (written / link).is_file()
    assert "\x1b" not in page and "<b>" not in page and "&lt;b&gt;" in page


def class_page(submissions, **fields):
    return pages.class_page(Results(submissions=submissions, **fields))


def test_the_class_page_names_the_median_the_hardest_task_and_the_hints_that_came_often():
    def of(learner, *states):
        hints = {"failed": f"Of {ord(learner[0])} numbers -{ord(learner[1])}.5e-07 is wrong. Mask `x`."}
        return graded(learner, [verdict(t, s, hint=hints.get(s, "")) for t, s in zip(POINTS, states, strict=False)])

    page = class_page(
        [of("ann", "passed", "failed", "not_attempted"), of("bob", "passed", "failed", "passed"),
         of("eve", "failed", "passed", "passed"), of("kim", "passed", "failed", "pending")]
    )  # fmt: skip
    assert "Median 7.5 of\n12 points" in page  # of 3, 7, 8 and 9
    assert "Hardest: 05.2 Task 05.2, right in 1 of 4 that tried it." in page
    assert re.search("<li>05.2, 3 times: Of [0-9]+ numbers .* is wrong. Mask <code>x</code>.", page)
    assert "05.1, " not in page
    assert page.count('class="passed" style="width:75.0%" title="3 passed"') == 1
    columns = re.findall(r"<div>(\d*)<div class=column style=\"height:([\d.]+)px\"></div>(\S+)</div>", page)
    assert [points for _, _, points in columns] == ["0–1", "2–3", "4–5", "6–7", "8–9", "10–11", "12"]
    held = {points: (count, height) for count, height, points in columns if count}
    assert held == {"2–3": ("1", "25.0"), "6–7": ("1", "25.0"), "8–9": ("2", "50.0")}
    alone = class_page([of("ann", "passed", "passed", "passed")])
    assert "Hardest" not in alone and "several learners" not in alone


def test_a_learners_page_says_where_a_result_is_wrong(written):
    page = (written / "learners" / "1_1.html").read_text()
    row = r"<tr><td>y\[2, 4\]\s*<td class=number>1\s*<td class=number>nan\s*<td class=number>0.1%</table>"
    assert re.search(row, page), page
    assert "proved: <code>y</code> is new in each call" in page and "not proved here: the compiled kernel" in page
    assert re.search(r"<tr><td>bytes\s*<td class=number>24", page) and "100%" in page
    assert "05.3 Task 05.3: pending, 4 of 5 points, 1 waiting for a GPU" in page and "None" not in page
    assert "<b>" not in page and "\x1b" not in page and "<script" not in page
    assert "Not graded, which is not a zero" in (written / "learners" / "joe.html").read_text()


def test_pages_have_names_of_their_own():
    found = pages.names([graded(name) for name in ("a/b", "A b", "../../etc", "", "-x", "Ä", "a_b-2", "a_b")])
    assert len({name.casefold() for name in found.values()}) == 8
    assert all(re.fullmatch(r"[\w-][\w.-]*", name) for name in found.values())


# ---------------------------------------------------------------- other programs


def test_junit_is_read_by_junitparser(written):
    suites = junitparser.JUnitXml.fromfile(str(written / "junit.xml"))
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (37, 3, 7, 1)
    cases = [case for suite in suites for case in suite]
    assert cases[0].classname == "05_rmsnorm" and cases[0].name.startswith("05.1 ")
    failed = next(case for case in cases if case.result and isinstance(case.result[0], junitparser.Failure))
    assert failed.result[0].message == SHOWN and failed.result[0].type == "values"


def test_the_gradebook_is_a_table_without_formulas(written):
    rows = list(csv.DictReader(io.StringIO((written / "grades.csv").read_text(encoding="utf-8-sig"))))
    by = {row["learner"]: row for row in rows}
    assert len(rows) == 7 and (by["jane"]["points"], by["jane"]["max_points"], by["jane"]["05.1"]) == ("25", "25", "3")
    assert by["'=1+1"]["pending_points"] == "1" and by["'=1+1"]["05.2"] == "0"
    for learner in ("joe", "kim"):
        assert by[learner]["points"] == by[learner]["05.1"] == ""  # a blank is no mark


def test_gradescopes_files_are_named_by_exercise(written):
    found = {str(p.relative_to(written / "gradescope")): json.loads(p.read_text()) for p in written.rglob("*/*/*.json")}
    assert set(found) == {
        "jane/05_rmsnorm.json",
        "jane/05_rmsnorm-2.json",
        "1_1/05_rmsnorm.json",
        "A_b/01_roofline.json",
        "a_b-2/05_rmsnorm.json",
        "joe/unreadable.json",
    }
    for form in found.values():
        assert isinstance(form["score"], int) and form["visibility"] == "visible" and form["output_format"] == "text"
        assert form["score"] == sum(test["score"] for test in form["tests"])
        for test in form["tests"]:
            assert 0 <= test["score"] <= test["max_score"] and test["status"] in ("passed", "failed")
            assert test["visibility"] == "visible" and test["output"] and isinstance(test["name"], str)
    assert "not a notebook" in found["joe/unreadable.json"]["output"]


def form_of(name, records, tmp_path, capsys, *more, said="what grade said"):
    """(exit status, what the command printed) of the command that deployments run."""
    (tmp_path / "said.txt").write_text(said)
    if records:
        report.write(tmp_path, Results(submissions=records))
    status = adapters.main(name, str(tmp_path), str(tmp_path / "said.txt"), *more)
    return status, capsys.readouterr().out


@pytest.mark.parametrize(
    "which, score, words",
    [
        ((0, 2), 25, "left aside: joe/a.ipynb: not a notebook"),
        ((2,), 0, "not a notebook"),
        ((0, 4), 0, "More than one notebook was handed in: jane/a.ipynb (05_rmsnorm), jane/b.ipynb"),
        ((), 0, "what grade said"),
        ((2, 3), None, ""),
    ],
    ids=["one and a stray file", "a stray file", "two", "nothing", "ungraded"],
)
def test_gradescopes_one_result_of_an_upload(which, score, words, records, tmp_path, capsys):
    status, out = form_of("gradescope", [records[i] for i in which], tmp_path, capsys)
    form = json.loads(out)
    assert (form and form["score"]) == score and status == (score is None)
    assert not form or words in form["output"]


@pytest.mark.parametrize(
    "which, status, most, tests",
    [((0,), "pass", 25, 6), ((0, 1), "fail", 50, 12), ((2,), "error", 7, 1), ((), "error", 7, 1), ((3,), None, 0, 0)],
)
def test_classrooms_line(which, status, most, tests, records, tmp_path, capsys):
    code, out = form_of("classroom", [records[i] for i in which], tmp_path, capsys, "7")
    form = json.loads(base64.b64decode(out))
    assert out.count("\n") == 1 and code == (status is None)
    if status:
        assert (form["status"], form["max_score"], len(form["tests"])) == (status, most, tests)
        keys = {"name", "status", "score", "message", "test_code", "filename", "line_no", "execution_time"}
        assert all(set(test) == keys and test["status"] in ("pass", "fail", "error") for test in form["tests"])
        assert form["tests"][0]["message"]


def test_a_verdict_without_a_place_writes_none(written):
    content = json.loads((written / "results.json").read_text())
    assert content["submissions"][0]["tasks"][0]["place"] == {}
    assert msgspec.convert(content["submissions"][0], Submission).points == 25
