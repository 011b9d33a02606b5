"""What a call costs the host: the records."""

from bench.host import merged
from instruments.results import HostTime


def test_cases_measured_again_take_the_place_of_their_records():
    old, other, new, more = (
        HostTime(name, launches, {}) for name, launches in (("a", 1), ("b", 1), ("a", 2), ("c", 1))
    )
    assert merged([old, other], [new, more]) == [new, other, more] and merged([], [new]) == [new]
