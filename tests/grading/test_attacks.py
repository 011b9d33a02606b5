"""Attacks through the whole of `grade`: the escapes, and one of each trick that the jail or the replay alone stops.

A run takes seconds, so the other tricks have their turn in `make corpora`, which runs all of attacks/corpus.py.
"""

import pytest
from attacks.corpus import ATTACKS
from attacks.stopping import stopped

EVERY_TIME = (
    "decoy launch",
    "another stream",
    "torch in the kernel",
    "forged results",
    "forged traces",
    "results as arguments",
    "kernels from elsewhere",
    "patched IPython",
    "exit",
    "fork flood",
    "the grader's files",
)
CLAIMS = (
    "a forged trace: the first case alone",
    "a forged trace: the hard cases as empty lists",
    "a forged record: no Triton on this machine",
    "a forged record: nothing came back",
    "a forged record: a verdict that nothing came back for",
    "a record of nonsense",
)
FIRST = {attack.trick: attack for attack in reversed(ATTACKS)}


def test_the_corpus_is_large_and_no_name_comes_twice():
    assert len(ATTACKS) >= 63 and len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize(
    "attack",
    [a for a in ATTACKS if a.keeps or a.name in CLAIMS or a.trick in EVERY_TIME and FIRST[a.trick] is a],
    ids=lambda a: a.name,
)
def test_attacks_are_stopped(attack):
    assert stopped(attack) == ""
