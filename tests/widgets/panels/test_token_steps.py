import math
import re

import pytest

from tests.widgets.tools import moves
from widgets import token_steps
from widgets.panels.token_steps import GATES, LOGITS, OUTPUT, RESULTS, ROWS, TOKENS


def experts_of(x):
    """What each expert makes of a token, written down by hand."""
    a, b = x
    return [(2 * a, 2 * b), (b, a), (-a, -b), (a + b, b)]


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_becomes_the_sum_of_its_experts_results(token):
    a, b = TOKENS[token]
    logits = [a, b, -a, -b]
    first, second = sorted(range(4), key=lambda expert: -logits[expert])[:2]
    gate = 1 / (1 + math.exp(logits[second] - logits[first]))
    one, other = experts_of((a, b))[first], experts_of((a, b))[second]
    expected = [gate * p + (1 - gate) * q for p, q in zip(one, other)]
    said = re.search(r"= \(([-\d.]+), ([-\d.]+)\)\. The combine", token_steps(OUTPUT, token).alt)
    assert [float(each) for each in said.groups()] == pytest.approx(expected, abs=0.006)
    assert f"gates {gate:.2f} and {1 - gate:.2f}" in token_steps(GATES, token).alt


def test_rows_are_sorted_by_expert_and_then_by_token():
    logits = {name: [a, b, -a, -b] for name, (a, b) in TOKENS.items()}
    chosen = {name: sorted(range(4), key=lambda expert: -of[expert])[:2] for name, of in logits.items()}
    rows = sorted((expert, name) for name, experts in chosen.items() for expert in experts)
    for name, experts in chosen.items():
        first, second = (rows.index((expert, name)) for expert in experts)
        assert f"token {name} has the rows {first} and {second}." in token_steps(ROWS, name).alt


def test_every_control_changes_the_picture():
    panel = token_steps(LOGITS)
    moves(panel, step=RESULTS, token="C")
