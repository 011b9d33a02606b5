"""What is stored of outputs: a panel's words beside its picture, an answer under a prediction folded."""

import re
from pathlib import Path

import nbformat
import pytest

from instruments import notebooks
from instruments.notebooks import ANSWER, WIDGET_VIEW, canonical, dumps
from instruments.start import lesson_of, notebook_of

PATH = Path("lessons/99_test.ipynb")


def _stored(outputs: list, source: str = "1", tags: tuple = ()):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}, outputs=outputs)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    text = dumps(notebook, PATH)
    assert text == dumps(nbformat.reads(text, as_version=4), PATH), "a fixed point"
    return canonical(notebook, PATH).cells[-1]


def _display(**data):
    return nbformat.v4.new_output("display_data", {key.replace("_", "/"): value for key, value in data.items()})


def test_a_panel_keeps_title_caption_and_text_alternative():
    panel = _display(image_png="AAAA", text_plain="Bars. 3 < 4")
    panel.data[WIDGET_VIEW] = {"model_id": "a1"}
    image = {"width": 1, "height": 2, "alt": "3 < 4. And more."}
    panel.metadata = {"title": "Bars", "caption": "3 < 4.", "image/png": image}
    title, picture, caption = _stored([panel]).outputs
    assert title.data == {"text/html": "<p><b>Bars</b></p>", "text/plain": "Bars"}
    assert picture.data == {"image/png": "AAAA", "text/plain": "Bars. 3 < 4"}
    assert picture.metadata == {"image/png": image}, "the text alternative is not printed"
    assert caption.data == {"text/html": "<p>3 &lt; 4.</p>", "text/plain": "3 < 4."}


@pytest.mark.parametrize(
    "output, folded",
    [
        (nbformat.v4.new_output("stream", text="42 < 43\n"), "<pre>42 &lt; 43\n</pre>"),
        (_display(text_html="<b>42</b>", text_plain="42"), "<b>42</b>"),
    ],
)
def test_an_answer_is_folded(output, folded):
    cell = _stored([output], tags=(ANSWER,))
    assert cell.outputs[0].data["text/html"] == (
        f"<details><summary>Output, which holds an answer</summary>{folded}</details>"
    )
    assert "42" in cell.outputs[0].data["text/plain"] and "jupyter" not in cell.metadata


def test_pictures_and_what_nbval_compares_are_folded_by_metadata():
    printed = nbformat.v4.new_output("stream", text="42\n")
    for cell in (
        _stored([_display(image_png="AAAA", text_plain="42")], tags=(ANSWER,)),
        _stored([printed], source="# NBVAL_CHECK_OUTPUT\n1", tags=(ANSWER,)),
    ):
        assert cell.metadata.jupyter == {"outputs_hidden": True} and cell.metadata.collapsed is True
    assert cell.outputs == [printed]


def test_without_the_tag_nothing_is_folded():
    cell = _stored([nbformat.v4.new_output("stream", text="42\n")], tags=("keep",))
    assert cell.outputs[0].output_type == "stream" and cell.metadata == {"tags": ["keep"]}


def test_each_notebook_leads_to_its_neighbors():
    """One line at the top and one at the bottom; the first lesson has none before it, the last none after it."""
    lessons = sorted((notebooks.ROOT / "lessons").glob("*.ipynb"))
    first, second, last = (notebooks.way(path) for path in (lessons[0], lessons[1], lessons[-1]))
    assert first == f"[{notebooks.short_title(lessons[1])}]({lessons[1].name}) →"
    assert second.startswith(f"← [{notebooks.short_title(lessons[0])}]({lessons[0].name}) · [all lessons](")
    name = lessons[1].stem
    solution = f"[solution](../solutions/{name}_solution.ipynb)"
    assert f"[exercise](../exercises/{name}_exercise.ipynb) · {solution}" in second
    assert "→" not in last and last.startswith("← ")
    exercise = notebooks.way(notebooks.ROOT / "exercises" / f"{name}_exercise.ipynb")
    assert f"[lesson](../lessons/{name}.ipynb) · {solution}" in exercise
    assert notebooks.way(Path("elsewhere/lessons") / lessons[1].name) == ""


def test_notebooks_are_told_apart_by_file_name_and_by_title():
    """In tabs, downloads and Colab's lists nothing else is seen."""
    paths = notebooks.notebooks()
    for path in paths:
        folder = path.parent.name
        assert str(path.relative_to(notebooks.ROOT)) == notebook_of(lesson_of(path.name), folder)
        kind = notebooks.KINDS[folder].title() if folder != "lessons" else r"\d\d"
        assert re.match(kind, notebooks.short_title(path)), path
    assert len({path.name for path in paths}) == len({notebooks.short_title(path) for path in paths}) == len(paths)


def test_a_solution_is_told_from_its_exercise_by_its_title():
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Exercise 99: a toy", id="title")])
    for folder, title in (("solutions", "# Solution 99: a toy"), ("exercises", "# Exercise 99: a toy")):
        assert notebooks.canonical(nb, Path(folder) / "99_toy.ipynb").cells[0].source == title
