import pytest

from widgets.toolkit.words import compared, number, rate, size, time, times

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


@pytest.mark.parametrize(
    "value, unit, digits, text",
    [
        (0, "", 4, "0"),
        (33.6, "MB", 4, "33.6 MB"),
        (1234.567, "", 4, "1,235"),
        (999.96, "", 4, "1,000"),
        (9.999, "", 2, "10"),
        (206.125, "", 3, "206"),
        (-0.5, "", 4, "-0.5"),
        (1e-5, "s", 4, "1e-05 s"),
        (1e16, "", 4, "1e+16"),
    ],
)
def test_number(value, unit, digits, text):
    assert number(value, unit, digits) == text


def test_size_time_rate():
    assert [size(n) for n in (0, 512, 999.9, 33_570_816, 9.999e11)] == ["0 B", "512 B", "1 KB", "33.6 MB", "1 TB"]
    assert [time(s) for s in (7e-6, 999.7e-6, 2.5e-8, 1)] == ["7 µs", "1 ms", "25 ns", "1 s"]
    assert [rate(r) for r in (66.9e12, 2.25e15)] == ["66.9 TFLOP/s", "2.25 PFLOP/s"]


def test_once_and_as_much():
    assert [times(n) for n in (1, 1.0004, 2.5)] == ["once", "once", "2.5 times"]
    said = ["3.5 times less", "as much", "as much", "twice as much", "16 times as much"]
    assert [compared(ratio) for ratio in (3.5, 1, 0.9996, 0.5, 1 / 16)] == said
