"""One attack for each trick, and every escape, through the whole of `grade`; `make corpora` runs them all."""

import pytest
from attacks.corpus import ATTACKS
from attacks.stopping import stopped

FIRST = {attack.trick: attack for attack in reversed(ATTACKS)}


def test_the_corpus_is_large_and_no_name_comes_twice():
    assert len(ATTACKS) >= 40 and len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.keeps or FIRST[a.trick] is a], ids=lambda a: a.name)
def test_attacks_are_stopped(attack):
    assert stopped(attack) == ""
