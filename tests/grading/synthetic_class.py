"""Writes a class that no one taught: python tests/grading/synthetic_class.py FOLDER --size 200

Right and wrong answers, files in every state that a mail program leaves them in, and answers that hang, fork, flood and
exit. The same size and seed give the same files.
"""

import argparse
import io
import json
import random
import re
import zipfile
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = tuple(path.stem for path in sorted((ROOT / "solutions").glob("*.ipynb")))


def solution(exercise: str):
    return nbformat.read(ROOT / "solutions" / f"{exercise}.ipynb", as_version=4)


def released(exercise: str):
    return nbformat.read(ROOT / "exercises" / f"{exercise}.ipynb", as_version=4)


def answers(nb) -> list:
    return [cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("solution")]


def text(nb) -> bytes:
    nb.metadata.pop("widgets", None)
    return nbformat.writes(nb).encode()


def functions_of(nb) -> dict:
    """{task id: names that its answer defines}, as its check cell gives them."""
    found = (re.match(r'check\("([\d.]+)", (.+)\)$', cell.source) for cell in nb.cells if cell.cell_type == "code")
    return {match[1]: tuple(match[2].split(", ")) for match in found if match}


def good(exercise, rng):
    return {"homework.ipynb": text(solution(exercise))}


def untouched(exercise, rng):
    return {"homework.ipynb": text(released(exercise))}


def wrong(exercise, rng):
    """One or two answers are wrong: a sign, a constant, a mask."""
    nb = solution(exercise)
    for cell in rng.sample(answers(nb), 2):
        changes = [(" + ", " - "), (" * ", " + "), ("mask=inside", "mask=None"), ("return ", "return 2 * ")]
        old, new = rng.choice(changes)
        cell.source = cell.source.replace(old, new)
    return {f"{exercise} (1).ipynb": text(nb)}


def broken(exercise, rng):
    """Files that are not notebooks, or hardly."""
    whole = text(solution(exercise))
    return rng.choice(
        [
            {"homework.ipynb": whole[: len(whole) // 2]},
            {"homework.ipynb": b""},
            {"homework.ipynb": b"\x89PNG\r\n\x1a\n"},
            {"homework.pdf": b"%PDF-1.4"},
            {"homework.ipynb": b"[]"},
            {"homework.ipynb": b"<<<<<<< HEAD\n" + whole},
            {"homework.zip": b"PK\x03\x04 broken"},
            {},
        ]
    )


def odd(exercise, rng):
    """Gradable files in an odd state: renamed, zipped, of another format, cells moved, doubled, deleted, retyped,
    answers in new cells or two in one."""
    nb = solution(exercise)
    kind = rng.randrange(9)
    first = answers(nb)[0]
    if kind == 0:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("my work/a b.ipynb", text(nb))
            archive.writestr("__MACOSX/._a b.ipynb", b"\0")
        return {"work.zip": packed.getvalue()}
    if kind == 1:
        rng.shuffle(nb.cells)
    elif kind == 2:
        nb.cells.append(nbformat.from_dict({**first, "id": "copy"}))
        nb.cells = [cell for cell in nb.cells if not cell.metadata.get("nbgrader", {}).get("grade")]
    elif kind == 3:
        nb.cells[nb.cells.index(first)] = nbformat.v4.new_markdown_cell(first.source, metadata=first.metadata)
    elif kind == 4:
        data = json.loads(text(nb))
        data["nbformat"] = 9
        return {"homework.ipynb.txt": json.dumps(data).encode()}
    elif kind == 5:
        first.outputs = [nbformat.v4.new_output("stream", text="x" * 8_000_000)]
    elif kind == 6:
        nb.cells.insert(nb.cells.index(first) + 1, nbformat.v4.new_code_cell(first.source))
        first.source = answers(released(exercise))[0].source
    elif kind == 7:
        first.source += "\n\n" + answers(nb)[1].source
        answers(nb)[1].source = "# see above"
    else:
        nb.cells = [cell for cell in nb.cells if cell is not first]
    return {"renamed by a browser.ipynb": text(nb)}


def _misbehaving(code: str):
    """One task attempted, and its answer does something else first."""

    def make(exercise, rng):
        nb = released(exercise)
        number = rng.randrange(len(answers(nb)))
        answers(nb)[number].source = code + "\n" + answers(solution(exercise))[number].source
        return {"homework.ipynb": text(nb)}

    return make


hang = _misbehaving("while True: pass")
stubborn = _misbehaving("while True:\n    try:\n        while True: pass\n    except BaseException: pass")
fork = _misbehaving(
    "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(600); os._exit(0)"
)
flood = _misbehaving("while True: print('flood ' * 1000)")
leaves = _misbehaving("import os; os._exit(0)")

#: of each dozen submissions, how many are of which kind
MIX = (
    (good, 4),
    (wrong, 3),
    (odd, 1.5),
    (broken, 1),
    (untouched, 0.5),
    (hang, 0.5),
    (fork, 0.5),
    (flood, 0.5),
    (leaves, 0.4),
    (stubborn, 0.1),
)


def signed(content: bytes, learner: str) -> bytes:
    """A notebook with its learner's name in the metadata: what is the same in two files is graded once."""
    try:
        data = json.loads(content)
        data["metadata"]["learner"] = learner
    except (ValueError, TypeError, KeyError):
        return content
    return json.dumps(data).encode()


def write(folder: Path, size: int, seed: int = 0, kinds: tuple = (), exercises: tuple = EXERCISES) -> dict:
    """Write `size` learners' folders below `folder`; {learner: kind}. kinds: names to take in turn, not the mix."""
    rng = random.Random(seed)
    made = {}
    by_name = {make.__name__ if make not in SPECIAL else SPECIAL[make]: make for make, _ in MIX}
    for number in range(size):
        if kinds:
            make = by_name[kinds[number % len(kinds)]]
        else:
            make = rng.choices([m for m, _ in MIX], [w for _, w in MIX])[0]
        learner = f"learner_{number:03d}"
        (folder / learner).mkdir(parents=True)
        for name, content in make(rng.choice(exercises), rng).items():
            (folder / learner / name).write_bytes(signed(content, learner))
        made[learner] = SPECIAL.get(make, make.__name__)
    return made


SPECIAL = {hang: "hang", stubborn: "stubborn", fork: "fork", flood: "flood", leaves: "leaves"}


def main() -> None:
    parser = argparse.ArgumentParser(description="write a synthetic class")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made = write(options.folder, options.size, options.seed)
    for kind in sorted(set(made.values())):
        print(f"{kind}: {sum(k == kind for k in made.values())}")


if __name__ == "__main__":
    main()
