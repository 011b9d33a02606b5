"""Whole notebooks, names and folders: FILES = {name: (line of the findings, what must hold)}. Apart from the cure.

build(name, folder, exercises) writes into `folder` (a pathlib.Path, empty) what `grade FOLDER --report DIR` is given;
`exercises` holds the pristine notebooks, `exercises/../solutions` the published ones. In notebooks' code, {CANARY} is
build's argument `canary`, a folder that the runner makes outside of everything and fills with files; nothing else
outside the run's own folder is touched, sizes are as small as shows the fault, and nothing forks.

EXPECT[name] is a dictionary of these words. Learners are named as `grade` names them: the child of `folder` without
.ipynb.
  learners       {learner: what must hold of its submission}, with
    points         {task: points + pending points}
    status         {task: tuple of statuses, one of which it has}
    notes          a regex that one of the learner's notes matches (re.search, case ignored)
    points_or_note {task: points}: those points, or some note that says what was left aside
    submission     tuple of statuses, one of which the submission has
  one_name       True: the only learner may be named in any way (its name is what is odd); learners has it as "*"
  others_unharmed True: learner "well" (published answers to all of exercise 02) has full marks, points + pending
  max_seconds    the command ends within so many seconds, on two cores; where 02 is graded, 120 are for that alone
  report         True: index.html, results.json and grades.csv exist
  exit           tuple of exit statuses, one of which the command has; left out: (0, 1)
  single         path below `folder` that `grade` is given in the place of `folder`
  max_report     bytes that the report folder may hold
  no_traceback   True: neither stdout nor stderr hold "Traceback"
  clean_output   True: stdout and stderr hold no control character but newline, carriage return and tab
  canary         True: the content, modes, times and extended attributes of all that lies in {CANARY} are as before
  no_trash       True: nothing of the run is left in the folder for temporary files
  limits         {"files": bytes, "memory": bytes}: run with the jail's limits lowered to these (so that no disk has to
                 be filled); where they cannot be lowered, skip
  isolation      the level below which the item says nothing and is skipped
  documented     True: the README names it as not defended; only what else the entry says must hold
"""

import copy
import json
import os
import socket
import stat
import zipfile
from pathlib import Path

import nbformat

MIB = 1 << 20
FULL_02 = {"02.1": 4, "02.2": 3, "02.3": 5, "02.4": 6, "02.5": 4}
FULL_05 = {"05.1": 3, "05.2": 3, "05.3": 5, "05.4": 5, "05.5": 6, "05.6": 3}

FILES, EXPECT, BUILDERS = {}, {}, {}


def entry(name, line, must, **expected):
    """Adds a function(folder, exercises, canary) under this name."""

    def add(function):
        FILES[name], EXPECT[name], BUILDERS[name] = (line, must), expected, function
        return function

    return add


def build(name, folder, exercises, canary="/nonexistent"):
    folder, exercises = Path(folder), Path(exercises)
    folder.mkdir(parents=True, exist_ok=True)
    BUILDERS[name](folder, exercises, str(canary))


# ---- notebooks ----


def numbered(folder, number):
    (path,) = folder.glob(f"{number}_*.ipynb")
    return nbformat.read(path, as_version=4)


def pristine(exercises, number):
    return numbered(exercises, number)


def grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def cell_of(notebook, task):
    return next(c for c in notebook.cells if grade_id(c) == "answer_" + task.replace(".", "_"))


def solution(exercises, task):
    published = numbered(exercises.parent / "solutions", task.partition(".")[0])
    lines = cell_of(published, task).source.split("\n")
    return "\n".join(line for line in lines if not line.strip().startswith("### "))


def answered(exercises, number, answers):
    """The pristine exercise with answers {task: source}; None stands for the published one."""
    notebook = pristine(exercises, number)
    for task, source in answers.items():
        cell_of(notebook, task).source = solution(exercises, task) if source is None else source
    return notebook


def write(notebook, path):
    """Past nbformat's validation: some of these are to be invalid."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = copy.deepcopy(dict(notebook))
    for cell in plain["cells"]:
        cell.setdefault("id", "x")
    path.write_text(json.dumps(plain), encoding="utf-8")


def well(folder, exercises):
    write(answered(exercises, "02", dict.fromkeys(FULL_02)), folder / "well.ipynb")


def beside(folder, exercises, code, task="02.1"):
    """A learner `joe` whose answer to a task runs this code first, with the published answer below; and `well`."""
    well(folder, exercises)
    write(answered(exercises, "02", {task: code + "\n\n" + solution(exercises, task)}), folder / "joe.ipynb")


# ---- costs 1: an answer behind one that is skipped, or odd ----


@entry(
    "only the last kernel of 02 is solved",
    "costs 1",
    "02.4 has its points, the tasks before it are not attempted",
    learners={
        "ann": {"points": {"02.4": 6, "02.2": 0}, "status": {"02.2": ("not_attempted",), "02.3": ("not_attempted",)}}
    },
)
def _(folder, exercises, canary):
    write(answered(exercises, "02", {"02.4": None}), folder / "ann.ipynb")


@entry(
    "03.3 left, 03.4 and 03.5 solved",
    "costs 1",
    "03.4 and 03.5 have their points",
    learners={"ann": {"points": {"03.4": 5, "03.5": 4}, "status": {"03.3": ("not_attempted",)}}},
)
def _(folder, exercises, canary):
    write(answered(exercises, "03", {"03.4": None, "03.5": None}), folder / "ann.ipynb")


@entry(
    "an odd kernel in 04.2, right ones behind it",
    "costs 1",
    "04.3 and 04.4 have their points, whatever 04.2 holds",
    learners={"ann": {"points": {"04.2": 0, "04.3": 5, "04.4": 6}}},
)
def _(folder, exercises, canary):
    odd = solution(exercises, "04.2").replace(
        "    inside = columns < cols\n",
        """    inside = columns < cols
    label = f"{BLOCK} columns"
    parts = {"block": BLOCK}
    try:
        import math
        size = [lambda: math.pi for _ in label]
    except ValueError as error:
        print(error)
""",
    )
    write(answered(exercises, "04", {"04.2": odd, "04.3": None, "04.4": None}), folder / "ann.ipynb")


@entry(
    "a syntax error in 05.3, 05.4 and 05.5 right",
    "costs 1",
    "05.4 and 05.5 have their points",
    learners={"ann": {"points": {"05.3": 0, "05.4": 5, "05.5": 6}, "status": {"05.3": ("failed",)}}},
)
def _(folder, exercises, canary):
    broken = solution(exercises, "05.3").replace("def gemma_norm(x, weight, eps):", "def gemma_norm(x, weight, eps)")
    write(answered(exercises, "05", {"05.3": broken, "05.4": None, "05.5": None}), folder / "ann.ipynb")


# ---- costs 4: the stub's raise behind finished code ----


@entry(
    "the raise stays at the kernel's end",
    "costs 4",
    "failed with a hint, not 'not attempted'; what follows is unharmed",
    learners={"ann": {"points": {"05.3": 0, "05.4": 5, "05.5": 6}, "status": {"05.3": ("failed",)}}},
)
def _(folder, exercises, canary):
    left = solution(exercises, "05.3").replace(
        "    tl.store(scale_ptr + row, scale)\n",
        "    tl.store(scale_ptr + row, scale)\n    # YOUR CODE HERE\n    raise NotImplementedError()\n",
    )
    write(answered(exercises, "05", {"05.3": left, "05.4": None, "05.5": None}), folder / "ann.ipynb")


@entry(
    "the raise stays before the host function's return",
    "costs 4",
    "failed with a hint; the tasks behind it have their points",
    learners={"ann": {"points": {"02.2": 0, "02.3": 5, "02.4": 6}, "status": {"02.2": ("failed",)}}},
)
def _(folder, exercises, canary):
    left = solution(exercises, "02.2").replace("    return out", "    raise NotImplementedError()\n    return out")
    write(answered(exercises, "02", {"02.2": left, "02.3": None, "02.4": None}), folder / "ann.ipynb")


# ---- costs 5: answers in other cells ----


@entry(
    "each answer in a new cell below its untouched stub",
    "costs 5",
    "the points, or a note that says what was left aside",
    learners={"ann": {"points_or_note": {"02.2": 3, "02.3": 5}}},
)
def _(folder, exercises, canary):
    notebook = pristine(exercises, "02")
    for task in ("02.2", "02.3"):
        at = notebook.cells.index(cell_of(notebook, task))
        notebook.cells.insert(at + 1, nbformat.v4.new_code_cell(solution(exercises, task)))
    write(notebook, folder / "ann.ipynb")


@entry(
    "the answers to 05.3 and 05.4 in the cell of 05.3",
    "costs 5",
    "both have their points, or a note says what was left aside",
    learners={"ann": {"points_or_note": {"05.3": 5, "05.4": 5}}},
)
def _(folder, exercises, canary):
    notebook = answered(exercises, "05", {"05.3": solution(exercises, "05.3") + "\n\n\n" + solution(exercises, "05.4")})
    notebook.cells.remove(cell_of(notebook, "05.4"))
    write(notebook, folder / "ann.ipynb")


@entry(
    "kernel, some text, host function",
    "costs 5",
    "an answer split around a markdown cell has its points, or a note says why not",
    learners={"ann": {"points_or_note": {"04.3": 5}}},
)
def _(folder, exercises, canary):
    notebook = pristine(exercises, "04")
    kernel, host = solution(exercises, "04.3").split("\n\n\n", 1)
    stub = cell_of(notebook, "04.3")
    stub.source = kernel
    at = notebook.cells.index(stub)
    notebook.cells[at + 1 : at + 1] = [
        nbformat.v4.new_markdown_cell("Now the launch."),
        nbformat.v4.new_code_cell(host),
    ]
    write(notebook, folder / "ann.ipynb")


@entry(
    "the answer above the stub's cell, the stub emptied",
    "costs 5",
    "the points, or a note that says what was left aside",
    learners={"ann": {"points_or_note": {"02.4": 6}}},
)
def _(folder, exercises, canary):
    notebook = pristine(exercises, "02")
    stub = cell_of(notebook, "02.4")
    stub.source = ""
    notebook.cells.insert(notebook.cells.index(stub), nbformat.v4.new_code_cell(solution(exercises, "02.4")))
    write(notebook, folder / "ann.ipynb")


# ---- costs 6: lines that are no Python ----


@entry(
    "shell lines and magics in answer cells",
    "costs 6",
    "the answers around them have their points",
    learners={"ann": {"points": {"02.1": 4, "02.2": 3, "02.3": 5}}},
)
def _(folder, exercises, canary):
    write(
        answered(
            exercises,
            "02",
            {
                "02.1": "!echo looking around\n" + solution(exercises, "02.1"),
                "02.2": solution(exercises, "02.2") + "\n\nlisting = !ls -1\n",
                "02.3": "%matplotlib inline\n" + solution(exercises, "02.3") + "\n\n!nvidia-smi\n",
            },
        ),
        folder / "ann.ipynb",
    )


@entry(
    "cell magics and questions in answer cells",
    "costs 6",
    "the answers have their points",
    learners={"ann": {"points": {"05.1": 3, "05.3": 5, "05.4": 5}}},
)
def _(folder, exercises, canary):
    write(
        answered(
            exercises,
            "05",
            {
                "05.1": "%%time\n" + solution(exercises, "05.1"),
                "05.3": "torch.empty?\n" + solution(exercises, "05.3"),
                "05.4": "%%capture\n" + solution(exercises, "05.4") + "\n!pip --version\n",
            },
        ),
        folder / "ann.ipynb",
    )


# ---- costs 8: names ----


@entry(
    "files named like options",
    "costs 8",
    "each is graded",
    learners={name: {"points": {"02.2": 3}, "submission": ("graded", "pending")} for name in ("--jobs=0", "-2", "--")},
)
def _(folder, exercises, canary):
    for name in ("--jobs=0", "-2", "--"):
        write(
            answered(exercises, "02", {"02.2": None, "02.1": f"# {name}\n" + solution(exercises, "02.1")}),
            folder / f"{name}.ipynb",
        )


@entry(
    "folders named --help and $(true) and with a quote",
    "costs 8",
    "each is graded",
    learners={name: {"points": {"02.2": 3}} for name in ("--help", "$(true)", 'o\'neil "x"', "a&b;c")},
)
def _(folder, exercises, canary):
    for name in ("--help", "$(true)", 'o\'neil "x"', "a&b;c"):
        write(
            answered(exercises, "02", {"02.2": None, "02.1": f"# {name!r}\n" + solution(exercises, "02.1")}),
            folder / name / "hw.ipynb",
        )


# ---- harms 1: folders that are hard to remove ----

DEEP = """
import os
here = os.getcwd()
try:
    os.chdir(os.environ.get("HOME", "."))
    for _ in range({COUNT}):
        os.mkdir({NAME})
        os.chdir({NAME})
finally:
    os.chdir(here)
"""


@entry(
    "1,500 folders in each other, with long names",
    "harms 1",
    "the class has its report, nothing stays behind",
    others_unharmed=True,
    report=True,
    no_traceback=True,
    no_trash=True,
    max_seconds=300,
)
def _(folder, exercises, canary):  # 1,500 times 40 letters is far over the 4,096 of a path
    beside(folder, exercises, DEEP.replace("{COUNT}", "1500").replace("{NAME}", '"d" * 40'))


@entry(
    "folders without any right, and a link that points to itself",
    "harms 1",
    "the class has its report, nothing stays behind",
    others_unharmed=True,
    report=True,
    no_traceback=True,
    no_trash=True,
    max_seconds=300,
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        """
import os, pathlib
home = pathlib.Path.home()
(home / "a" / "b" / "c").mkdir(parents=True)
(home / "a" / "b" / "c" / "file").write_text("x")
os.symlink("loop", home / "loop")
os.symlink("..", home / "a" / "up")
(home / os.fsdecode(b"\\xff\\xfe\\n")).write_text("a name that is no UTF-8")
os.chmod(home / "a" / "b", 0)
os.chmod(home / "a", 0o100)
""",
    )


# ---- harms 2: what Landlock does not cover ----


@entry(
    "modes of files that are not the learner's",
    "harms 2",
    "no mode in {CANARY} changes",
    canary=True,
    others_unharmed=True,
    isolation="files",
    max_seconds=300,
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        f"""
import os
for top, folders, names in os.walk({canary!r}):
    for name in (".", *folders, *names):
        for mode in (0o4755, 0o000, 0o777):
            try:
                os.chmod(os.path.join(top, name), mode)
            except OSError:
                pass
""",
    )


@entry(
    "times, owners and attributes of files that are not the learner's",
    "harms 2",
    "none in {CANARY} changes",
    canary=True,
    others_unharmed=True,
    isolation="files",
    max_seconds=300,
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in [{canary!r}, *(os.path.join({canary!r}, n) for n in ("a", "b", "canary"))]:
    for act in (lambda: os.utime(name, (1, 1)), lambda: os.setxattr(name, "user.apart", b"1"),
                lambda: os.chown(name, os.getuid(), os.getgid()), lambda: os.lchown(name, os.getuid(), -1)):
        try:
            act()
        except OSError:
            pass
    libc.fchmodat(-100, os.fsencode(name), 0o4711, 0)
    libc.utimensat(-100, os.fsencode(name), None, 0)
""",
    )


# ---- harms 3: memory and files that have no name ----


@entry(
    "files without a name, over the limit",
    "harms 3",
    "the run is ended, and tells of the limit of files",
    limits={"files": 64 * MIB},
    others_unharmed=True,
    isolation="limits",
    max_seconds=300,
    learners={"joe": {"status": {"02.1": ("failed",)}}},
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        """
import os, tempfile, time
KEPT = []
for _ in range(24):  # 96 MiB in all, in files that nobody can see
    file = tempfile.TemporaryFile(dir=os.environ.get("HOME", "."))
    file.write(b"x" * (4 << 20))
    file.flush()
    KEPT.append(file)
time.sleep(20)
""",
    )


@entry(
    "memory in memfds and shared maps, over the limit",
    "harms 3",
    "the run is ended, and tells of the limit of memory",
    limits={"memory": 1792 * MIB},  # what a right submission takes fits
    others_unharmed=True,
    isolation="limits",
    max_seconds=300,
    learners={"joe": {"status": {"02.1": ("failed",)}}},
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        """
import mmap, os, time
KEPT = []
for i in range(48):  # 3 GiB in all; half of it in memory files, half in shared pages
    if i % 2:
        fd = os.memfd_create("apart")
        os.write(fd, b"x" * (64 << 20))
        KEPT.append(fd)
    else:
        page = mmap.mmap(-1, 64 << 20)
        page.write(b"x" * (64 << 20))
        KEPT.append(page)
time.sleep(20)
""",
    )


# ---- harms 4: what is slow before the jail ----


@entry(
    "a hundred thousand lines of tabs and carriage returns",
    "harms 4",
    "read in seconds",
    others_unharmed=True,
    max_seconds=240,
)
def _(folder, exercises, canary):
    well(folder, exercises)
    notebook = answered(
        exercises,
        "02",
        {
            "02.1": solution(exercises, "02.1") + "\n" + "\t \n" * 60_000 + "\r\n" * 40_000,
            "02.2": " " * 300_000 + "\n" + solution(exercises, "02.2"),
            "02.5": solution(exercises, "02.5") + "\n" * 100_000 + "pass\n",
        },
    )
    write(notebook, folder / "joe.ipynb")


@entry("the stub's marker fifty thousand times", "harms 4", "read in seconds", others_unharmed=True, max_seconds=240)
def _(folder, exercises, canary):
    well(folder, exercises)
    write(
        answered(
            exercises,
            "02",
            {
                "02.1": "    # YOUR CODE HERE\n" * 50_000 + solution(exercises, "02.1"),
                "02.2": "### BEGIN SOLUTION\n" * 30_000 + solution(exercises, "02.2"),
            },
        ),
        folder / "joe.ipynb",
    )


@entry(
    "300,000 markdown cells in a zip", "harms 4", "refused or read in seconds", others_unharmed=True, max_seconds=240
)
def _(folder, exercises, canary):
    well(folder, exercises)
    text = json.dumps(pristine(exercises, "02"))
    cell = '{"cell_type": "markdown", "id": "m", "metadata": {}, "source": []}, '
    text = text.replace('"cells": [', '"cells": [' + cell * 300_000, 1)
    with zipfile.ZipFile(folder / "joe.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("hw.ipynb", text)


@entry(
    "JSON a hundred thousand lists deep",
    "harms 4",
    "unreadable, not a traceback",
    others_unharmed=True,
    max_seconds=180,
    no_traceback=True,
    learners={"joe": {"submission": ("unreadable", "graded", "pending")}},
)
def _(folder, exercises, canary):
    well(folder, exercises)
    text = json.dumps(pristine(exercises, "02"))
    (folder / "joe.ipynb").write_text(
        text.replace('"metadata": {', '"metadata": {"deep": ' + "[" * 100_000 + "]" * 100_000 + ", ", 1)
    )


@entry(
    "sixty notebooks of one learner",
    "harms 4",
    "not all sixty are graded; the learner is told",
    others_unharmed=True,
    max_seconds=300,
    learners={"joe": {"notes": "notebook"}},
)
def _(folder, exercises, canary):
    well(folder, exercises)
    for i in range(60):
        write(
            answered(exercises, "02", {"02.1": f"# version {i}\n" + solution(exercises, "02.1")}),
            folder / "joe" / f"hw{i}.ipynb",
        )


@entry(
    "a zip of 4,000 small notebooks",
    "harms 4",
    "ends in time; the learner is told",
    others_unharmed=True,
    max_seconds=300,
)
def _(folder, exercises, canary):
    well(folder, exercises)
    text = json.dumps(pristine(exercises, "02"))
    with zipfile.ZipFile(folder / "joe.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(4_000):
            archive.writestr(
                f"v{i}/hw.ipynb",
                text.replace(
                    '"cells": [',
                    f'"cells": [{{"cell_type": "markdown", "id": "i{i}", "metadata": {{}}, "source": "{i}"}}, ',
                    1,
                ),
            )


# ---- harms 5: links and pipes ----


@entry(
    "links to the neighbour's folder and file",
    "harms 5",
    "joe gets none of well's points",
    others_unharmed=True,
    max_seconds=240,
    learners={"joe": {"points": {"02.4": 0}}, "jim": {"points": {"02.4": 0}}},
)
def _(folder, exercises, canary):
    write(answered(exercises, "02", dict.fromkeys(FULL_02)), folder / "well" / "hw.ipynb")
    for name, target in (("joe", "../well"), ("jim", "../well/hw.ipynb")):
        (folder / name).mkdir()
        os.symlink(target, folder / name / ("all" if name == "joe" else "mine.ipynb"))


@entry(
    "a whole learner that is a link, and a link in a zip",
    "harms 5",
    "neither gets well's points",
    others_unharmed=True,
    max_seconds=240,
    learners={"zed": {"points": {"02.4": 0}}},
)
def _(folder, exercises, canary):
    well(folder, exercises)
    os.symlink("well.ipynb", folder / "joe.ipynb")
    with zipfile.ZipFile(folder / "zed.zip", "w") as archive:
        link = zipfile.ZipInfo("hw.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, str((folder / "well.ipynb").resolve()))


@entry(
    "a pipe in a learner's folder, a socket beside it",
    "harms 5",
    "grade does not wait for them",
    others_unharmed=True,
    report=True,
    max_seconds=240,
)
def _(folder, exercises, canary):
    well(folder, exercises)
    (folder / "joe").mkdir()
    os.mkfifo(folder / "joe" / "hw.ipynb")
    os.mkfifo(folder / "pipe.zip")
    place = os.getcwd()
    os.chdir(folder)  # a socket's path may have 108 letters
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("talk.ipynb")
    finally:
        os.chdir(place)


@entry(
    "a link without an end and one to /dev/zero",
    "harms 5",
    "grade ends",
    others_unharmed=True,
    report=True,
    max_seconds=240,
)
def _(folder, exercises, canary):
    well(folder, exercises)
    (folder / "joe").mkdir()
    os.symlink("hw.ipynb", folder / "joe" / "hw.ipynb")
    (folder / "jim").mkdir()
    os.symlink("/dev/zero", folder / "jim" / "hw.ipynb")


# ---- harms 6: metadata against the schema ----


def _odd_metadata(folder, exercises, name, change):
    notebook = answered(exercises, "02", {"02.2": None})
    for cell in notebook.cells:
        change(cell)
    write(notebook, folder / f"{name}.ipynb")


@entry(
    "cell metadata of the wrong types, one file",
    "harms 6",
    "graded",
    single="ann.ipynb",
    no_traceback=True,
    one_name=True,
    learners={"*": {"points": {"02.2": 3}}},
)
def _(folder, exercises, canary):
    _odd_metadata(
        folder,
        exercises,
        "ann",
        lambda cell: cell["metadata"].update(
            collapsed="yes", name="", tags="a", jupyter=3, format=["raw"], scrolled={"auto": 1}, deletable=None
        ),
    )


@entry(
    "cell metadata of the wrong types, a class",
    "harms 6",
    "each is graded, or told what is wrong",
    others_unharmed=True,
    no_traceback=True,
    learners={n: {"points": {"02.2": 3}} for n in ("tags", "ids", "counts")},
)
def _(folder, exercises, canary):
    well(folder, exercises)
    _odd_metadata(folder, exercises, "tags", lambda cell: cell["metadata"].update(tags=["a,b", "", "a,b"]))
    _odd_metadata(folder, exercises, "ids", lambda cell: cell.update(id="not an id! " * 20))
    _odd_metadata(
        folder,
        exercises,
        "counts",
        lambda cell: (
            cell.cell_type == "code"
            and cell.update(
                execution_count="three",
                outputs=[{"output_type": "stream", "name": 5, "text": None}, {"output_type": "unheard of"}],
            )
        ),
    )


# ---- harms 7: names and texts that reach the terminal and the report ----


@entry(
    "names with escapes, a bell and a change of direction",
    "harms 7",
    "no control character reaches the terminal",
    clean_output=True,
    others_unharmed=True,
    report=True,
    max_seconds=300,
)
def _(folder, exercises, canary):
    well(folder, exercises)
    for name in ("red\x1b[31m", "title\x1b]0;owned\x07", "back\b\b\bspace", "line\nfeed", "c1\x9b2J"):
        write(pristine(exercises, "02"), folder / f"{name}.ipynb")
    write(pristine(exercises, "02"), folder / "right\u202eto left" / "hw.ipynb")


@entry(
    "an exception whose type has a name of 8 MB",
    "harms 7",
    "the report stays small",
    others_unharmed=True,
    max_report=20 * MIB,
    max_seconds=300,
    learners={"joe": {"points": {"02.2": 0}}},
)
def _(folder, exercises, canary):
    well(folder, exercises)
    write(
        answered(
            exercises,
            "02",
            {
                "02.2": """
Long = type("E" * (8 << 20), (Exception,), {})


def add_short(x, y):
    raise Long("m" * (8 << 20))
"""
            },
        ),
        folder / "joe.ipynb",
    )


@entry(
    "a function and a file with names of 4 MB in the traceback",
    "harms 7",
    "the report stays small",
    others_unharmed=True,
    max_report=20 * MIB,
    max_seconds=300,
    learners={"joe": {"points": {"02.2": 0}}},
)
def _(folder, exercises, canary):
    well(folder, exercises)
    write(
        answered(
            exercises,
            "02",
            {
                "02.2": """
scope = {}
exec(compile("def inner():\\n    raise ValueError('here')\\n", "f" * (4 << 20), "exec"), scope)
inner = scope["inner"]
inner.__code__ = inner.__code__.replace(co_name="n" * (4 << 20))


def add_short(x, y):
    inner()
"""
            },
        ),
        folder / "joe.ipynb",
    )


# ---- harms 8: sockets with a path ----


@entry(
    "a word to a socket in the canary folder",
    "harms 8",
    "documented: what listens may hear it, the grading goes on",
    documented=True,
    others_unharmed=True,
    max_seconds=300,
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        f"""
import socket
try:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(2)
        s.connect({canary + "/socket"!r})
        s.sendall(b"hello")
except OSError:
    pass
""",
    )


@entry(
    "datagrams to an abstract socket",
    "harms 8",
    "no abstract socket is reached from `network` on; the grading goes on",
    documented=True,
    others_unharmed=True,
    max_seconds=300,
)
def _(folder, exercises, canary):
    beside(
        folder,
        exercises,
        """
import socket
for address in ("\\0bytes-first-apart",):
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.settimeout(2)
            s.sendto(b"hello", address)
    except OSError:
        pass
""",
    )
