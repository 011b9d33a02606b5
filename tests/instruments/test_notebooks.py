"""What is stored of outputs: a panel's words beside its picture, an answer under a prediction folded."""

from pathlib import Path

import nbformat
import pytest

from instruments.notebooks import ANSWER, WIDGET_VIEW, canonical, dumps

PATH = Path("lessons/99_test.ipynb")


def _stored(outputs: list, source: str = "1", tags: tuple = ()):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}, outputs=outputs)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    text = dumps(notebook, PATH)
    assert text == dumps(nbformat.reads(text, as_version=4), PATH), "a fixed point"
    return canonical(notebook, PATH).cells[-1]


def _display(**data):
    return nbformat.v4.new_output("display_data", {key.replace("_", "/"): value for key, value in data.items()})


def test_a_panel_keeps_title_sentence_and_text_alternative():
    panel = _display(image_png="AAAA", text_plain="Bars. 3 < 4")
    panel.data[WIDGET_VIEW] = {"model_id": "a1"}
    panel.metadata = {"title": "Bars", "image/png": {"width": 1, "height": 2, "alt": "3 < 4"}}
    words, picture = _stored([panel]).outputs
    assert words.data["text/html"] == "<p><b>Bars</b></p><p>3 &lt; 4</p>" and words.data["text/plain"] == "Bars. 3 < 4"
    assert picture.data == {"image/png": "AAAA", "text/plain": "Bars. 3 < 4"}
    assert picture.metadata == {"image/png": {"width": 1, "height": 2, "alt": "3 < 4"}}


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
