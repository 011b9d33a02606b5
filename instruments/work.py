"""The learner's own copies of the notebooks, in work/, and how they follow the course: `make work`, and `make lab`.

    python -m instruments.work              copy what was never copied, renew what the learner has not changed
    python -m instruments.work --restore    the same, and copy again what she has deleted

A copy counts as changed where the source of a cell differs from what was copied; outputs, metadata and empty cells do
not count, so reading, running and saving a notebook changes nothing. A changed copy is kept as it is, and when the
course has a newer version of it, that is put beside it, once, as `NAME (new).ipynb`. No file that a learner changed,
made or put there is ever overwritten or removed, and every file is written whole or not at all.

work/.copied.json remembers what was copied. Without it, as after a crash, nothing is lost: a copy that is not the
course's present version then counts as changed.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from instruments.files import write_whole
from instruments.start import FOLDERS, ROOT, lesson_of

WORK = "work"
MANIFEST = ".copied.json"
NAMED = 4  # notebooks that the sentence names; more are counted

# A link out of lessons/, exercises/ or solutions/ to a file that work/ has no copy of.
LINK_OUT = re.compile(rf"(\]\(|(?:src|href)=\")\.\./(?!(?:{'|'.join(FOLDERS)})/)")


@dataclass
class Changes:
    """What one update did, by the notebooks' paths in work/. moved: from where, and where to. beside: kept ones, and
    where their new version lies."""

    moved: dict[str, str] = field(default_factory=dict)
    copied: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """The one sentence for the learner."""
        parts = []
        if len(self.moved) > NAMED:
            parts.append(f"moved {len(self.moved)} to the course's new names, such as {[*self.moved.values()][0]}")
        else:
            parts += [f"moved {old} to {new}, its new name" for old, new in self.moved.items()]
        if self.copied:
            parts.append(f"copied {names_or_count(self.copied)}")
        if self.renewed:
            parts.append(f"renewed {names_or_count(self.renewed)}")
        if len(self.beside) > NAMED:
            parts.append(
                f"kept {len(self.beside)} that you changed, each with the new version beside it as 'NAME (new).ipynb'"
            )
        else:
            parts += [
                f"kept {mine} as you changed it, with the new version beside it as {new!r}"
                for mine, new in self.beside.items()
            ]
        if self.unreadable:
            parts.append(f"passed over {names_or_count(self.unreadable)}, damaged in the course's own folder")
        if self.deleted:
            parts.append(
                f"left out {names_or_count(self.deleted)}, which you deleted (make work RESTORE=1 copies again)"
            )
        return f"{WORK}/: {'; '.join(parts) or 'up to date'}."


def names_or_count(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} notebooks"


def update(root: Path = ROOT, restore: bool = False) -> Changes:
    """Bring root/work up to date with the notebooks of root. restore: copy deleted ones again.

    Raises OSError where work/ cannot be read or written; what was done until then is done, and remembered.
    """
    work = root / WORK
    work.mkdir(exist_ok=True)
    manifest, changes = read_manifest(work), Changes()
    try:
        for folder in FOLDERS:
            for path in sorted((root / folder).glob("*.ipynb")):
                rename(path, work, manifest, changes)
                follow(path, work, manifest, changes, restore)
    finally:
        write(work / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return changes


def rename(path: Path, work: Path, manifest: dict, changes: Changes) -> None:
    """Move a copy of an exercise or a solution that has its lesson's name, as once all had, to its present name, where
    nothing has that yet."""
    name, old = (f"{path.parent.name}/{file}" for file in (path.name, f"{lesson_of(path.name)}.ipynb"))
    if name == old:
        return
    if os.path.lexists(work / old) and not os.path.lexists(work / name):
        os.rename(work / old, work / name)
        changes.moved[old] = name
    if old in manifest and not os.path.lexists(work / old):  # moved, now or in a run that was cut off, or deleted
        manifest.setdefault(name, manifest.pop(old))


def follow(path: Path, work: Path, manifest: dict, changes: Changes, restore: bool) -> None:
    """Bring the copy of one notebook of the course up to date."""
    name = f"{path.parent.name}/{path.name}"
    copy, before = work / name, manifest.get(name, {})
    text, present = copy_of(path), read(copy)
    if text is None:
        changes.unreadable.append(name)
        return
    latest, current = sources(text), sources(present)
    if not os.path.lexists(copy):
        if before and not restore:
            changes.deleted.append(name)
            return
        changes.copied.append(name)
    elif present is not None and digest(present) == before.get("text"):  # as it was copied, outputs included
        if current != latest:
            changes.renewed.append(name)
    elif current == latest:  # run or saved since, and up to date: its outputs are hers
        manifest[name] = {**before, "sources": latest}
        return
    elif current is not None and current == before.get("sources"):
        changes.renewed.append(name)
    else:
        if latest not in (before.get("sources"), before.get("offered")):
            changes.beside[name] = offer(copy, text, work, manifest)
            manifest[name] = {**before, "offered": latest}
        return
    if present != text:
        write(copy, text)
    manifest[name] = {"sources": latest, "text": digest(text)}


def offer(copy: Path, text: str, work: Path, manifest: dict) -> str:
    """Put the new version of a changed copy beside it; its path in work/. One put there before is replaced only where
    the learner has not changed it."""
    for number in count(1):
        place = copy.with_name(f"{copy.stem} (new{f' {number}' if number > 1 else ''}).ipynb")
        name = place.relative_to(work).as_posix()
        current, latest = sources(read(place)), sources(text)
        unchanged = current is not None and current in (latest, manifest.get(name, {}).get("sources"))
        if unchanged or not os.path.lexists(place):
            if current != latest:
                write(place, text)
            manifest[name] = {"sources": latest}
            return name


def copy_of(path: Path) -> str | None:
    """The text of the learner's copy of a notebook; None where the file is no notebook, as in a merge that failed.

    Links lead to where they led; and the kernel's language_info is what JupyterLab would write on opening it, which
    would otherwise ask on closing whether to save. The stored notebook has none, since it differs by Python's version.
    """
    from ipykernel.ipkernel import IPythonKernel

    text = read(path)
    if sources(text) is None:
        return None
    nb = json.loads(text)
    nb["metadata"]["language_info"] = IPythonKernel.language_info
    for cell in nb["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = relinked(cell["source"])
        for output in cell.get("outputs", []):
            for kind in ("text/markdown", "text/html"):
                if kind in output.get("data", {}):
                    output["data"][kind] = relinked(output["data"][kind])
    return json.dumps(nb, ensure_ascii=False, indent=1, sort_keys=True) + "\n"  # as nbformat and JupyterLab write it


def relinked(source: str | list[str]) -> str | list[str]:
    """Text of a notebook, with its links out of the copied folders leading one folder further up."""
    lines = [LINK_OUT.sub(r"\1../../", line) for line in ([source] if isinstance(source, str) else source)]
    return lines[0] if isinstance(source, str) else lines


def sources(text: str | None) -> str | None:
    """What tells whether a notebook was changed: a hash of its cells' types and sources, the empty ones left out.
    None where `text` is no notebook."""
    try:
        nb = json.loads(text)
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in nb["cells"]]
        if not isinstance(nb["metadata"], dict):
            return None
    except (TypeError, ValueError, KeyError, RecursionError):
        return None
    return digest(json.dumps([cell for cell in cells if cell[1].strip()]))


def digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_manifest(work: Path) -> dict:
    """What work/ remembers of each copy: the hash of its sources, of all its text, and of the sources last offered
    beside it. Empty where it was never written or is damaged."""
    try:
        manifest = json.loads(read(work / MANIFEST) or "")
        return {name: entry for name, entry in manifest.items() if isinstance(entry, dict)}
    except (ValueError, AttributeError):
        return {}


def read(path: Path) -> str | None:
    """The text of a plain file; None for anything else: nothing there, a link, a folder, bytes that are no text."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def write(path: Path, text: str) -> None:
    """Write a file, all of it or nothing."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, text.encode("utf-8"))
    if path.suffix == ".ipynb":
        trust(text)


def trust(text: str) -> None:
    """Tell Jupyter that this notebook is to be trusted, as one that the learner ran: of outputs that it does not trust
    it leaves out the styles, and breaks their lines in the middle of words. Where it cannot be told, that is all."""
    import nbformat
    from nbformat.sign import NotebookNotary

    with suppress(Exception):
        NotebookNotary().sign(nbformat.reads(text, as_version=4))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m instruments.work", description="copy the notebooks into work/")
    parser.add_argument("--restore", action="store_true", help="copy again what was deleted")
    options = parser.parse_args(arguments)
    try:
        print(update(ROOT, options.restore))
    except OSError as error:
        print(
            f"{WORK}/ could not be brought up to date, and what you have there is as it was: {error}", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
