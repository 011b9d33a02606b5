import pytest

from widgets import table


def test_text_and_html_say_the_same():
    made = table(
        {"op": "", "time, µs": ".1f", "rows": ","}, [("a < b", 12.34, 8192), ("copy", None, 1)], caption="Times"
    )
    assert repr(made) == "Times\nop     time, µs   rows\na < b      12.3  8,192\ncopy          -      1"
    page = made._repr_html_()
    assert "white-space:nowrap" in page and "overflow-x:auto" in page, "no line is broken on a narrow page"
    assert '<td style="text-align:left">a &lt; b</td><td style="text-align:right">12.3</td>' in page


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"rows\[1\]: got 1 values, expected 2: a, b"):
        table({"a": "", "b": ""}, [(1, 2), (3,)])
