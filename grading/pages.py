"""The pages people read: one for each learner, with hints and pictures, and one for the class. Plain HTML, no scripts."""

import html
import re
from collections import Counter, defaultdict

from grading.formats import WORDS, is_graded, reason, standing, waiting

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top }
th { border-bottom: 2px solid #ccc } td { border-bottom: 1px solid #eee } .number { text-align: right; white-space: nowrap }
.task { border-left: .4rem solid #999; padding: .1rem 1rem; margin: 1rem 0 } .task h3 { font-size: 1rem; margin: .4rem 0 }
.passed { border-color: #009e73 } .pending { border-color: #0072b2 } .failed { border-color: #d55e00 }
.hint { background: #fff4e5; padding: .4rem .8rem } .quiet { color: #555 } ul { margin: .3rem 0 }
.place { width: auto } figure { margin: .6rem 0 } figcaption { color: #555 }
"""
REPAIR = ("Repair the answer cell, run its check cell, and hand in again. A task counts as a whole. Inputs here differ "
          "from those of `check`.")
MODES = {"interpreted": "graded without a GPU: kernels ran in Triton's interpreter",
         "unavailable": "graded without Triton: no kernel ran"}
CELL = 10  # pixels of one field of a picture
NAMES = 5  # learners that are named for one failure
ISOLATION = {"process": "a process of its own, with your rights (level process, the weakest)",
             "limits": "limits on time, memory and processes, and your rights otherwise (level limits)",
             "files": "no files but its own, no TCP (level files)",
             "network": "no files, no network (level network, the strongest)"}


def slugs(records: list) -> dict:
    """{learner: name of their page's file, without .html}, all different on any file system."""
    found, taken = {}, set()
    for learner in dict.fromkeys(record["learner"] for record in records):
        base = name = re.sub(r"[^\w.-]+", "_", learner).strip("._")[:80] or "learner"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name.lower())
        found[learner] = name
    return found


def learner_page(learner: str, records: list) -> str:
    """All that one learner handed in."""
    failed = any(task["status"] == "failed" for record in records for task in record["tasks"])
    return _document(f"Grades of {learner}", f"<h1>Grades of {_e(learner)}</h1>"
                     + (f"<p>{_code(REPAIR)}</p>" if failed else "") + "".join(map(_submission, records))
                     + _legend(records))


def class_page(records: list, aside: list = ()) -> str:
    """The class: what needs a person, how each task went, who has what, and whose answers are alike."""
    names = slugs(records)
    counts = Counter(record["status"] for record in records)
    states = {"graded": "graded", "pending": "graded with pending points", "unreadable": "unreadable", "ungraded": "ungraded"}
    told = ", ".join(f"{counts[status]} {words}" for status, words in states.items() if counts[status])
    rows = "".join(
        f"<tr><td><a href='learners/{_e(names[r['learner']])}.html'>{_e(r['learner'])}</a><td>{_e(r['exercise'])}"
        f"<td>{_e(r['path'])}<td class=number>{r['points'] if is_graded(r) else ''}"
        f"<td class=number>{r['pending_points'] if is_graded(r) else ''}"
        f"<td class=number>{r['max_points'] if is_graded(r) else ''}<td>{_e(_states(r))}" for r in records)
    body = (f"<h1>Grades</h1><p>{len(records)} submission{'s' * (len(records) != 1)}: {told or 'none'}.</p>"
            + _without_a_gpu(records) + _isolation(records) + _attention(records, aside) + _tasks(records)
            + "<h2>Submissions</h2><table><tr><th>learner<th>exercise<th>file<th class=number>points<th class=number>pending"
            f"<th class=number>of<th>tasks{rows}</table>" + _alike(records) + _legend(records))
    return _document("Grades", body)


def _document(title: str, body: str) -> str:
    return (f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<title>{_e(title)}</title><style>{STYLE}</style>{body}</html>\n")


def _e(text) -> str:
    return html.escape(str(text))


def _code(text) -> str:
    """Text with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _e(text))


def _legend(records: list) -> str:
    if not any(record["pending_points"] for record in records):
        return ""
    return "<p class=quiet>Pending points need a GPU: grade the same file on a machine that has one.</p>"


def _without_a_gpu(records: list) -> str:
    """How many points could be earned here, where there was no GPU."""
    most = {r["exercise"]: (r["gradable_points"], r["max_points"]) for r in records
            if is_graded(r) and r["gradable_points"] < r["max_points"]}
    lines = "; ".join(f"{gradable} of the {points} points of {_e(name)}"
                      for name, (gradable, points) in sorted(most.items()))
    return f"<p>Without a GPU, what could be earned here: {lines}. The rest waits for a GPU.</p>" if lines else ""


def _isolation(records: list) -> str:
    """What held learner code back."""
    levels = sorted({r["isolation"] for r in records if is_graded(r)} & set(ISOLATION), key=list(ISOLATION).index)
    return "".join(f"<p class=quiet>Learner code ran with {ISOLATION[level]}.</p>" for level in levels)


def _states(record: dict) -> str:
    states = [task["status"] for task in record["tasks"]]
    return ", ".join(f"{states.count(s)} {WORDS[s]}" for s in WORDS if s in states) or WORDS[record["status"]]


# ---------------------------------------------------------------- the class


def _attention(records: list, aside: list) -> str:
    """Submissions without a mark, learners with two files for one exercise, and files that are no one's."""
    lines = [f"<li>{_e(r['learner'])}: {_e(reason(r))}" for r in records if not is_graded(r)]
    several = defaultdict(list)
    for record in records:
        if record["exercise"]:
            several[record["learner"], record["exercise"]].append(record["path"])
    lines += [f"<li>{_e(learner)} handed in {exercise} {len(paths)} times: {_e(', '.join(paths))}. Decide which counts."
              for (learner, exercise), paths in several.items() if len(paths) > 1]
    if aside:
        lines.append(f"<li>Left aside, because they are no notebooks: {_e(', '.join(aside))}.")
    return f"<h2>Needs a person</h2><ul>{''.join(lines)}</ul>" if lines else ""


def _tasks(records: list) -> str:
    """How each task went: how many passed, and which hints were given most."""
    by_task = defaultdict(list)
    for record in records:
        for task in record["tasks"]:
            by_task[task["id"], task["title"]].append((task, record["learner"]))
    if not by_task:
        return ""
    rows = ""
    for (name, title), tasks in sorted(by_task.items()):
        states = Counter(task["status"] for task, _ in tasks)
        failures = defaultdict(list)
        for task, learner in tasks:
            if task["status"] == "failed":
                failures[fault(task["hint"])].append(learner)
        usual = "<br>".join(f"{_code(what)} ({_e(_listed(who))})" for what, who in
                            sorted(failures.items(), key=lambda item: -len(item[1]))[:3])
        rows += (f"<tr><td>{_e(name)} {_e(title)}<td class=number>{states['passed'] + states['pending']}"
                 f"<td class=number>{states['failed']}<td class=number>{states['not_attempted']}<td>{usual}")
    return ("<h2>Tasks</h2><table><tr><th>task<th class=number>right<th class=number>failed<th class=number>not attempted"
            f"<th>what failed most{rows}</table>")


def fault(hint: str) -> str:
    """The sentence of a hint that says what is wrong, without its case and its numbers: equal for equal faults."""
    told = re.sub(r'^(In `\w+`: )?Case "[^"]*": ', lambda found: found[1] or "", hint)
    told = re.sub(r" \d+ of \d+ cases (is|are) right; all have to be\.", "", told)
    sentence = re.split(r"\.\s+(?=[A-Z`])", told)[0].rstrip(".")
    sentence = re.sub(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?![\w-])", "…", sentence)
    return re.sub(r" \([^()]*…[^()]*\)", "", sentence) or "no hint"


def _listed(names: list) -> str:
    """Some names, and that there are more."""
    return ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


def _alike(records: list) -> str:
    """Answers that are the same but for names, comments and blanks: a reason to look, not a proof."""
    told = [task for record in records for task in record["tasks"] if task.get("likeness")]
    if not told:
        return ""
    groups = defaultdict(list)
    for record in records:
        for task in record["tasks"]:
            if task.get("likeness"):
                groups[task["id"], task["likeness"]].append((record["learner"], task.get("like_solution", False)))
    lines = ""
    for (name, _), found in sorted(groups.items()):
        learners = list(dict.fromkeys(learner for learner, _ in found))
        like_solution = any(like for _, like in found)
        if len(learners) > 1 or like_solution:
            lines += f"<li>{_e(name)}: {_e(', '.join(learners))}" + (" (the published solution)" if like_solution else "")
    for record in records:
        published = sum(task.get("like_solution", False) for task in record["tasks"])
        if published:
            lines += f"<li>{_e(record['learner'])}: {published} of {len(record['tasks'])} as published"
    missing = "" if any("like_solution" in task for task in told) else (
        " They could not be compared with the published solutions: there is no folder solutions/ here.")
    return (f"<h2>Alike</h2><p class=quiet>Answers that are the same but for names, comments and blanks. Short answers are "
            f"often alike by chance.{missing}</p><ul>{lines}</ul>") if lines or missing else ""


# ---------------------------------------------------------------- one submission


def _submission(record: dict) -> str:
    place = record["environment"]
    where = versions = ""
    if {"mode", "device", "torch", "triton"} <= set(place):
        where = f"{MODES.get(place['mode']) or 'graded on ' + str(place['device'])}; "
        versions = f"{place['mode']} on {place['device']}, torch {place['torch']}, triton {place['triton']}"
    shared = _shared(record["tasks"])
    notes = "".join(f"<li>{_e(note)}" for note in record["notes"])
    if is_graded(record):
        mark = standing(record, " points")
    else:
        mark = "Not graded, which is not a zero"
    return (f"<h2>{_e(record['exercise'] or record['path'])}</h2><p>{mark}. <span class=quiet>{_e(record['path'])}</span></p>"
            + (f"<ul>{notes}</ul>" if notes else "")
            + f"<p class=quiet title='{_e(versions)}'>{_e(where)}{record['seconds']} s</p>"
            + "".join(_task(task, shared) for task in record["tasks"])
            + "".join(f"<p class=quiet>{_e(', '.join(names))}: {_code(line)}.</p>" for line, names in shared.items()))


def _lines(task: dict) -> list:
    """What is proved about a task, and what is not."""
    return [f"proved: {s}" for s in task["proved"]] + [f"not proved here: {s}" for s in task["unproved"]]


def _shared(tasks: list) -> dict:
    """{line: the tasks under which it would stand}, of lines about kernels that several tasks have: told once."""
    found = defaultdict(list)
    for task in tasks:
        for line in _lines(task):
            found[line].append(task["id"])
    return {line: names for line, names in found.items() if len(names) > 1 and "kernel" in line}


def _task(task: dict, shared: dict) -> str:
    points = f"{task['points']} of {task['max_points']} points"
    if task["pending_points"]:
        points += f" ({waiting(task)})"
    lines = "".join(f"<li>{_code(line)}" for line in _lines(task) if line not in shared)
    return (f"<div class='task {task['status']}'><h3>{_e(task['id'])} {_e(task['title'])}: {WORDS[task['status']]}, {points}"
            f"</h3>" + (f"<p class=hint>{_code(task['hint'])}</p>" if task["hint"] else "") + _place(task["place"])
            + (f"<ul class=quiet>{lines}</ul>" if lines else "") + "</div>")


def _place(place: dict) -> str:
    """Where a result is wrong: the first wrong element, the share of wrong ones, and a picture."""
    if {"call", "yours", "right"} <= set(place):
        rows = "".join(f"<tr><td>{_e(name)}<td class=number>{_number(place['yours'][name])}"
                       f"<td class=number>{_number(right)}" for name, right in place["right"].items())
        return (f"<table class=place><tr><th>{_e(place['call'])}<th class=number>yours<th class=number>right"
                f"{rows}</table>")
    if not {"output", "first", "expected", "got", "wrong"} <= set(place):
        return ""
    index = ", ".join(map(str, place["first"]))
    share = f"{place['wrong']:.0%}" if place["wrong"] >= 0.005 else f"{place['wrong']:.2%}"
    table = (f"<table class=place><tr><th>first wrong<th class=number>expected<th class=number>got"
             f"<th class=number>wrong elements<tr><td>{_e(place['output'])}[{_e(index)}]<td class=number>{_number(place['expected'])}"
             f"<td class=number>{_number(place['got'])}<td class=number>{share}</table>")
    if place["wrong"] == 1 and place.get("map"):
        return f"{table}<p class=quiet>every element of {_e(place['output'])} is wrong</p>"
    return table + (_picture(place) if place.get("map") else "")


def _number(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _e(value)


def _picture(place: dict) -> str:
    """A grid laid over the result: the darker a field, the more of it is wrong."""
    grid = place["map"]
    rows, cols = len(grid), len(grid[0])
    height, width = (place.get("shape") or [rows, cols])[:2]
    fields = "".join(f"<rect x='{x * CELL}' y='{y * CELL}' width='{CELL - 1}' height='{CELL - 1}' "
                     f"fill='{'#d55e00' if share else '#e8e8e8'}' fill-opacity='{0.35 + 0.65 * share if share else 1:.2f}'/>"
                     for y, line in enumerate(grid) for x, share in enumerate(line))
    says = f"where {place['output']} is wrong: {height:,} rows from top to bottom, {width:,} columns from left to right"
    high, broad = -(-height // rows), -(-width // cols)
    if high * broad > 1:
        most = " at most" if height % rows or width % cols else ""
        says += f"; a square stands for {high:,} x {broad:,} elements{most}"
    return (f"<figure><svg role=img width='{cols * CELL}' height='{rows * CELL}' viewBox='0 0 {cols * CELL} {rows * CELL}'>"
            f"<title>{_e(says)}</title>{fields}</svg><figcaption>{_e(says)}; the darker, the more of it</figcaption></figure>")
