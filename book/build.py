"""The course as a book of web pages, from the stored notebooks; no cell is run.

    python book/build.py                 write build/book/html and check its links (make book does this)
    python book/build.py --check         only check the links of what is there

A page per lesson and per exercise, the documents in docs/, and a page of source per file of kernels/. Pictures become
files with their text alternatives; code that a notebook folds is folded here; formulas become MathML, so that no page
loads anything from elsewhere. Lists of pages come from the files and their metadata. panels.py adds panels that move.

Needs book/requirements.txt. The data of the panels that move lie in build/book/panels: `python -m book.panels
build/book/panels` writes them, in the course's own environment.
"""

import argparse
import base64
import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from latex2mathml.converter import convert
from vl_convert import javascript_bundle

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from instruments import contents
from instruments.start import lesson_of, notebook_of, on_colab, repository

OUT = ROOT / "build/book"
PAGES, HTML = OUT / "source", OUT / "html"
PARTS = ("lessons", "exercises")
DOCS = {
    "glossary": "Glossary",
    "results": "Measured results",
    "grading": "Grading",
    "architecture": "How the course is built",
}
FENCE = "`" * 6
ASSERTED = "# @title Asserted"  # cells that hold the text to its numbers: for the notebook alone


def relative(page: Path, target: str) -> str:
    """The way from a page to a target, both from the book's root."""
    return "../" * (len(page.parts) - 1) + target


def web_address(target: str, page: Path) -> str | None:
    """Where a link of the repository leads in the book; None if it leads to nothing that the book has.

    Args:
        target: as in the notebook or document, relative to it.
        page: that notebook or document, from the repository's root.
    """
    address, anchor = urldefrag(target)
    # Jupyter keeps a heading's punctuation (#2.-A-ring), MyST drops it and writes small letters (#2-a-ring).
    anchor = "#" + re.sub(r"[^\w-]", "", unquote(anchor).lower()) if anchor else ""
    if not address:
        return anchor
    path = (ROOT / page.parent / unquote(address)).resolve()
    if not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT)
    if inside.suffix == ".ipynb":
        folder = inside.parts[0]
        if folder == "solutions":  # unsolved here: the notebook itself, to download
            return relative(page, f"notebooks/{inside}")
        return relative(page, str(inside.with_suffix(".html"))) + anchor
    if inside.parts[0] == "docs" and inside.suffix == ".md" and inside.stem in DOCS:
        return relative(page, str(inside.with_suffix(".html"))) + anchor
    if inside.parts[0] == "kernels" and inside.suffix == ".py":
        return relative(page, f"source/{inside.with_suffix('.html')}")
    return relative(page, "index.html") if inside == Path("README.md") else None


def prose(text: str, page: Path) -> str:
    """Markdown of a notebook or document with its links, formulas and pictures in the book's form."""
    kept = []  # code is left alone: each piece is put back at the end

    def keep(match):
        kept.append(match[0])
        return f"\x00{len(kept) - 1}\x00"

    def link(match):
        words, target = match[1], match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        address = web_address(target, page)
        return words if address is None else f'<a href="{html.escape(address)}">{words}</a>'

    def picture(match):
        source = (ROOT / page.parent / match[2]).resolve()
        name = f"{page.stem}-{source.name}"
        shutil.copy(source, PAGES / "_extra/pictures" / name)
        return f'<img src="{relative(page, "pictures/" + name)}" alt="{html.escape(match[1])}">'

    text = re.sub(r"^```.*?^```[ \t]*$", keep, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]+`", keep, text)
    text = re.sub(
        r"\$\$(.+?)\$\$", lambda m: "\n\n" + convert(m[1].strip(), display="block") + "\n\n", text, flags=re.DOTALL
    )
    text = re.sub(r"(?<![\\\w$])\$([^$\n]+)\$(?![\w$])", lambda m: convert(m[1]), text)
    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", picture, text)
    text = re.sub(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)", link, text)
    for number in range(len(kept) - 1, -1, -1):
        text = text.replace(f"\x00{number}\x00", kept[number])
    return sources_linked(text, page)


def sources_linked(text: str, page: Path) -> str:
    """The same with each `kernels/.../file.py` in backticks linked to its page."""

    def link(match):
        path = ROOT / match[1]
        address = relative(page, f"source/{Path(match[1]).with_suffix('.html')}")
        return f'<a href="{address}"><code>{match[1]}</code></a>' if path.is_file() else match[0]

    return re.sub(r"`(kernels/[\w/]+\.py)`", link, text)


def raw(markup: str) -> str:
    """HTML as a block of its own: without empty lines, which would end it."""
    return "\n" + re.sub(r"\n\s*\n", "\n", markup.strip()) + "\n"


def output_block(output: dict, page: Path, name: str) -> str:
    """An output of a cell: a picture with its text alternative, HTML, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        file = f"{page.stem}-{name}.png"
        (PAGES / "_extra/pictures" / file).write_bytes(base64.b64decode("".join(data["image/png"])))
        alt = html.escape("".join(data.get("text/plain", "")), quote=True).replace("\n", " ")
        return raw(f'<img class="still" src="{relative(page, "pictures/" + file)}" alt="{alt}" loading="lazy">')
    if "text/html" in data:
        markup = "".join(data["text/html"])
        where = re.search(r"<b>(kernels/[\w/]+\.py)</b>", markup)  # of show_source
        if where:
            address = relative(page, f"source/{Path(where[1]).with_suffix('.html')}")
            markup = markup.replace(where[0], f'<a href="{address}"><b>{where[1]}</b></a>', 1)
        inner = markup.replace("\n", "&#10;") if "<pre" in markup else markup
        return raw(f'<div class="output">{inner}</div>')
    if "text/markdown" in data:
        return "\n" + prose("".join(data["text/markdown"]), page) + "\n"
    text = "".join(output.get("text", "")) or "".join(data.get("text/plain", ""))
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.get("traceback", []))) or text
    return f"\n{FENCE}text\n{text.rstrip()}\n{FENCE}\n" if text.strip() else ""


def code_block(cell: dict) -> str:
    """A code cell's source, folded where the notebook folds it."""
    source = "".join(cell["source"])
    block = f"\n{FENCE}python\n{source}\n{FENCE}\n"
    if not cell["metadata"].get("jupyter", {}).get("source_hidden"):
        return block
    title = re.match(r"# @title (.+)", source)
    words = html.escape(title[1] if title else "Code")
    return f'\n<details class="folded"><summary>{words}</summary>\n{block}\n</details>\n'


def links_line(path: Path) -> str:
    """The line under a notebook's title: its exercise or lesson, the notebook itself, and Colab."""
    page, parts = path.relative_to(ROOT), []
    for folder, words in (("lessons", "Lesson"), ("exercises", "Exercise")):
        other = Path(notebook_of(lesson_of(path.name), folder))
        if other != page and (ROOT / other).exists():
            parts.append(f'<a href="{relative(page, str(other.with_suffix(".html")))}">{words}</a>')
    solution = notebook_of(lesson_of(path.name), "solutions")
    if (ROOT / solution).exists():
        parts.append(f'<a href="{relative(page, f"notebooks/{solution}")}" download>Solution (notebook)</a>')
    parts.append(f'<a href="{relative(page, f"notebooks/{page}")}" download>Download this notebook</a>')
    colab = on_colab(repository(), str(page))
    if colab:
        parts.append(f'<a href="{colab}">Open in Colab</a>')
    parts.append(f"In JupyterLab: <code>make lab</code>, then <code>{page}</code>")
    return raw(f'<p class="links">{" · ".join(parts)}</p>')


def notebook_page(path: Path, panels: dict) -> str:
    """A notebook as Markdown. panels: {name of a panel's function: the address of its data}, which follow its still."""
    page, cells = path.relative_to(ROOT), json.loads(path.read_text(encoding="utf-8"))["cells"]
    out, titled = [], False
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = prose(source, page)
            if not titled and text.startswith("# "):
                title, _, rest = text.partition("\n")
                kind = "" if page.parts[0] == "lessons" or "Exercise" in title else "Exercise "
                text, titled = f"# {kind}{title[2:]}\n{links_line(path)}\n{rest}", True
            out.append(text)
        elif cell["cell_type"] == "code" and cell.get("id") != "set-up" and not source.startswith(ASSERTED):
            code, name = code_block(cell), cell.get("id", str(number))
            shown = "".join(output_block(o, page, f"{name}-{i}") for i, o in enumerate(cell.get("outputs", [])))
            if "answer" in cell["metadata"].get("tags", []):
                shown = f"\n<details><summary>The answer</summary>\n{shown}\n</details>\n"
            out += [shown, code] if code.lstrip().startswith("<details") else [code, shown]  # folded code follows
            for panel in re.findall(r"^(\w+)\(", source, re.MULTILINE):
                if panel in panels:
                    out.append(raw(f'<div class="panel" data-panel="{relative(page, panels[panel])}"></div>'))
    return "\n\n".join(out) + "\n"


def source_page(path: Path) -> str:
    """The source of a file of kernels/."""
    return f"# {path.relative_to(ROOT)}\n\n{FENCE}python\n{path.read_text(encoding='utf-8').rstrip()}\n{FENCE}\n"


def write(page: str, text: str):
    """Write a page, named from the book's root."""
    target = PAGES / page
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def toctree(caption: str, entries: list[str], hidden: bool = True) -> str:
    """A list of pages for the sidebar."""
    options = f":caption: {caption}\n:maxdepth: 1\n" + (":hidden:\n" if hidden else "")
    return f"{FENCE}{{toctree}}\n{options}\n" + "\n".join(entries) + f"\n{FENCE}\n"


def index_page() -> str:
    """The first page: what the course is, from the README, and its table of lessons."""
    readme, page = (ROOT / "README.md").read_text(encoding="utf-8"), Path("README.md")
    head = readme.partition("\n## Start")[0]
    start = readme.partition("\n## Start\n")[2].partition("\n## Lessons\n")[0]
    parts = [prose(head, page), "## Start\n" + prose(start, page), "## Lessons\n\n" + prose(contents.table(), page)]
    names = {part: [f"{part}/{path.stem}" for path in sorted((ROOT / part).glob("*.ipynb"))] for part in PARTS}
    kernels = [f"source/{path.relative_to(ROOT).with_suffix('')}" for path in kernel_files()]
    write(
        "source/index.md",
        "# The kernels' source\n\n" + toctree("Files", [f"/{name}" for name in kernels], hidden=False),
    )
    trees = [toctree("Lessons", names["lessons"]), toctree("Exercises", names["exercises"])]
    trees.append(toctree("Reference", [*(f"docs/{name}" for name in DOCS), "source/index"]))
    return "\n\n".join(parts + trees)


def kernel_files() -> list[Path]:
    """The files of kernels/ that have a page."""
    return [path for path in sorted((ROOT / "kernels").rglob("*.py")) if path.stat().st_size]


def moving_panels() -> dict[str, str]:
    """{name of a panel's function: the address of its data}, made from build/book/panels, and Vega's library."""
    (PAGES / "_static/vega.js").write_text(f"(() => {{{javascript_bundle()}}})();\n", encoding="utf-8")
    files = sorted((OUT / "panels").glob("*.json"))
    for path in files:
        script = f"panelData.{path.stem} = {path.read_text(encoding='utf-8')};\n"
        (PAGES / f"_static/panels/{path.stem}.js").write_text(script, encoding="utf-8")
    return {path.stem: f"_static/panels/{path.stem}.js" for path in files}


def build(panels: dict):
    """Write all pages and let Sphinx make HTML of them."""
    for path in (*(p for part in PARTS for p in sorted((ROOT / part).glob("*.ipynb"))),):
        write(f"{path.relative_to(ROOT).with_suffix('.md')}", notebook_page(path, panels))
    for folder in (*PARTS, "solutions"):
        for path in (ROOT / folder).glob("*.ipynb"):
            target = PAGES / "_extra/notebooks" / folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for name in DOCS:
        text = prose((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), Path(f"docs/{name}.md"))
        if name == "glossary":  # its terms are main entries of the index, which the search puts first
            text = re.sub(r"^(\| <a id=.+?</a>)\*\*([^*]+)\*\*", r"\1**{index}`!\2`**", text, flags=re.MULTILINE)
        write(f"docs/{name}.md", text)
    for path in kernel_files():
        write(f"source/{path.relative_to(ROOT).with_suffix('.md')}", source_page(path))
    write("index.md", index_page())
    for name in ("conf.py",):
        shutil.copy(ROOT / "book" / name, PAGES / name)
    for name in ("book.css", "panels.js"):
        shutil.copy(ROOT / "book" / name, PAGES / "_static" / name)
    command = [sys.executable, "-m", "sphinx", "-q", "-j", "auto", "-b", "html", str(PAGES), str(HTML)]
    subprocess.run(command, check=True)


class Links(HTMLParser):
    """The addresses that a page names, and the ids that it has."""

    def __init__(self):
        super().__init__()
        self.addresses, self.ids = [], set()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        self.addresses += [attrs[name] for name in ("href", "src", "data-panel") if attrs.get(name)]


def broken_links(folder: Path = HTML) -> list[str]:
    """['page: address'] of what leads nowhere within the book, or loads a file from elsewhere."""
    pages = {}
    for path in set(folder.rglob("*.html")) - set(folder.glob("_static/*")):
        pages[path] = Links()
        pages[path].feed(path.read_text(encoding="utf-8"))
    broken = []
    for path, page in pages.items():
        for address in page.addresses:
            target, anchor = urldefrag(address)
            if re.match(r"(https?:)?//|mailto:|data:|javascript:", target):
                continue
            file = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            missing = not file.exists() or anchor and file in pages and unquote(anchor) not in pages[file].ids
            if missing and anchor not in ("", "top") or not file.exists():
                broken.append(f"{path.relative_to(folder)}: {address}")
    return sorted(set(broken))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only check the links of the book that is there")
    if not parser.parse_args().check:
        shutil.rmtree(PAGES, ignore_errors=True)
        shutil.rmtree(HTML, ignore_errors=True)
        for folder in ("_static/panels", "_extra/pictures"):
            (PAGES / folder).mkdir(parents=True)
        build(moving_panels())
    broken = broken_links()
    print(*broken, f"{HTML}/index.html: {len(list(HTML.rglob('*.html')))} pages, {len(broken)} broken links", sep="\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
