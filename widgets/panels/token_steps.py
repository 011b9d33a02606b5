"""The panel of one token in a mixture of experts: its numbers through router, permutation, experts and combine."""

import numpy as np
import torch

from kernels.moe.permute import permute_reference
from kernels.moe.router import router_reference
from widgets.drawings.moe import COLOURS
from widgets.drawings.pictures import page
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, RED, SKY, Example, Panel, menu, whole

EXAMPLE = Example(entry="3", text="Sorted by expert, token A has the rows", arguments={"step": 2})

TOKENS = {"A": (2, 1), "B": (1, 2), "C": (-1, 2), "D": (2, -1)}
ROUTER = ((1, 0, -1, 0), (0, 1, 0, -1))  # [hidden, experts]
EXPERTS = {  # a matrix each, and in words what it does
    "doubles": ((2, 0), (0, 2)),
    "swaps": ((0, 1), (1, 0)),
    "negates": ((-1, 0), (0, -1)),
    "adds 2nd to 1st": ((1, 0), (1, 1)),
}
TOP_K = 2
LOGITS, GATES, ROWS, RESULTS, OUTPUT = range(1, 6)  # steps


def token_steps(step: int = 5, token: str = "A") -> Panel:
    """Two experts of four for each of four tokens of two elements; an expert is one matrix.

    Args:
        step: 1 computes logits, 2 gates, 3 rows sorted by expert, 4 the experts' results, 5 their sum.
        token: One of TOKENS, the one that is followed.
    """
    x, router = torch.tensor([*TOKENS.values()]).double(), torch.tensor(ROUTER).double()
    routed = router_reference(x, router, TOP_K)
    sorted_rows = permute_reference(routed.experts, len(EXPERTS))
    matrices = torch.tensor([*EXPERTS.values()]).double()
    picture = _Picture(routed.experts, sorted_rows)

    def draw(step, token):
        at = [*TOKENS].index(token)
        logits = x[at] @ router
        experts, gates = routed.experts[at].tolist(), routed.gates[at].tolist()
        rows = sorted_rows.rows[at].tolist()
        results = [x[at] @ matrices[expert] for expert in experts]
        terms = [f"{gate:.2f} · {_vector(y)}" for gate, y in zip(gates, results)]
        y = sum(gate * each for gate, each in zip(gates, results))
        shares = logits.softmax(0).tolist()
        picture.show(at, step, logits.tolist(), shares, experts, gates, rows, results, terms, y)
        first, second = experts
        if step == LOGITS:
            said = ", ".join(f"{logit:.0f}" for logit in logits)
            return f"Token {token} is {_vector(x[at])}. Times the router's four columns that makes the logits {said}."
        if step == GATES:
            kept = shares[first] + shares[second]
            return (
                f"Softmax makes the logits of token {token} probabilities; the two largest are kept. Experts {first} "
                f"and {second} have {shares[first]:.2f} and {shares[second]:.2f}; over their sum, {kept:.2f}, that "
                f"makes the gates {gates[0]:.2f} and {gates[1]:.2f}."
            )
        if step == ROWS:
            return (
                f"Sorted by expert, token {token} has the rows {rows[0]} and {rows[1]}. All rows of an expert lie "
                f"together; the offsets are {', '.join(map(str, sorted_rows.offsets.tolist()))}."
            )
        if step == RESULTS:
            return (
                f"Expert {first} makes {_vector(results[0])} of token {token}, expert {second} {_vector(results[1])}. "
                "Each expert multiplies all its rows at once."
            )
        return f"Token {token} becomes {' + '.join(terms)} = {_vector(y)}. The combine reads its rows and adds."

    controls = {"step": whole("step", LOGITS, OUTPUT, OUTPUT), "token": menu("token", TOKENS, "A")}
    return Panel("A token's way through the layer", picture.figure, controls, draw).set(step=step, token=token)


def _vector(values) -> str:
    return f"({', '.join(f'{value:.2f}'.rstrip('0').rstrip('.') for value in values)})"


_TOP, _HIGH, _PITCH = 58, 24, 29
_ROWS, _RESULT = 392, 470  # left edges


def _line(at: int) -> float:
    return _TOP + _PITCH * at


class _Picture:
    """From the left: tokens, the router's numbers, rows sorted by expert, what experts make of them, the output."""

    def __init__(self, experts, permutation):
        slots = len(TOKENS) * TOP_K
        self.figure, axes = page(300)
        self.axes = axes
        heads = (("token", 64, 1), ("router", 236, 1), ("rows", _ROWS + 24, ROWS), ("experts", 540, RESULTS))
        for words, middle, _ in (*heads, ("output", 680, OUTPUT)):
            self._word(middle, 16, words, weight="bold")
        for column, words in zip((150, 205, 265, 320), ("expert", "logit", "prob.", "gate")):
            self._word(column, 38, words, color="#555555")
        edge = {"edgecolor": BLACK, "linewidth": 0.8}
        self.tokens = Boxes(axes, SKY, **edge)
        self.vectors = [
            self._word(64, _TOP + 58 * at + 12, f"{name} = {_vector(values)}", animated=True)
            for at, (name, values) in enumerate(TOKENS.items())
        ]
        of_row = experts.flatten()[permutation.rows.flatten().argsort()].tolist()
        owner = [*TOKENS]
        tokens = permutation.tokens.tolist()
        self.full = []
        for expert in range(len(EXPERTS)):
            Boxes(axes, COLOURS[expert], animated=False, **edge).place(128, _TOP + 58 * expert, 44, _HIGH)
            self._word(150, _TOP + 58 * expert + 12, str(expert))
            own = np.array([row for row in range(slots) if of_row[row] == expert], float)
            self.full.append((Boxes(axes, COLOURS[expert], **edge), own))
        self.names = [
            (self._word(_ROWS + 24, _line(row) + 12, owner[tokens[row]], animated=True), owner[tokens[row]])
            for row in range(slots)
        ]
        self.numbers = [self._word(_ROWS - 14, _line(row) + 12, "", animated=True) for row in range(slots)]
        self.table = [
            [self._word(x, _TOP + 58 * expert + 12, "", animated=True) for x in (205, 265, 320)]
            for expert in range(len(EXPERTS))
        ]
        self.results = [self._word(540, 0, "", animated=True) for _ in range(TOP_K)]
        self.output = [self._word(680, 120 + 26 * at, "", animated=True) for at in range(TOP_K + 1)]
        self.marks = Boxes(axes, "none", edgecolor=RED, linewidth=2.5, zorder=3)
        self.fan = [
            axes.plot([], [], color="#999999", linewidth=1, animated=True, zorder=1)[0] for _ in range(len(EXPERTS))
        ]
        self.ways = [
            axes.plot([], [], color=RED, linewidth=1.6, alpha=0.6, animated=True, zorder=2)[0] for _ in range(4)
        ]

    def _word(self, x, y, words, **look):
        return self.axes.text(x, y, words, fontsize=9, ha="center", va="center", **look)

    def show(self, at, step, logits, shares, experts, gates, rows, results, terms, y):
        """Of the token number `at`: logits and probabilities by expert, and for each choice gate, row, result, term."""
        gate_of = dict(zip(experts, gates))
        for expert, (logit, share, gate) in enumerate(self.table):
            logit.set_text(f"{logits[expert]:.0f}")
            share.set_text(f"{shares[expert]:.2f}" if step >= GATES else "")
            gate.set_text(f"{gate_of[expert]:.2f}" if step >= GATES and expert in gate_of else "")
        for boxes, own in self.full:
            boxes.place(_ROWS, _line(own) if step >= ROWS else own, 48, _HIGH if step >= ROWS else 0)
        for row, ((text, words), number) in enumerate(zip(self.names, self.numbers)):
            text.set_text(words if step >= ROWS else "")
            number.set_text(str(row) if step >= ROWS else "")
        visible = [n for n in range(len(TOKENS)) if n == at or step >= ROWS]  # until then one token is alone
        self.tokens.place(24, _TOP + 58 * np.array(visible, float), 80, _HIGH)
        for n, text in enumerate(self.vectors):
            text.set_visible(n in visible)
        for expert, line in enumerate(self.fan):
            line.set_data((105, 127), (_TOP + 58 * at + 12, _TOP + 58 * expert + 12))
        boxes = [(24, _TOP + 58 * at, 80)]
        boxes += [(128, _TOP + 58 * expert, 44) for expert in experts if step >= GATES]
        boxes += [(_ROWS, _line(row), 48) for row in rows if step >= ROWS]
        left, top, wide = np.array(boxes).T
        self.marks.place(left, top, wide, _HIGH)
        for text, row, expert, result in zip(self.results, rows, experts, results):
            text.set(text=f"expert {expert}: {_vector(result)}" if step >= RESULTS else "", y=_line(row) + 12)
        said = [*(f"{' + ' if n else ''}{term}" for n, term in enumerate(terms)), f"= {_vector(y)}"]
        for text, words in zip(self.output, said):
            text.set_text(words if step >= OUTPUT else "")
        ways = []
        if step >= ROWS:
            ways += [((342, _ROWS - 26), (_TOP + 58 * e + 12, _line(r) + 12)) for e, r in zip(experts, rows)]
        if step >= OUTPUT:
            ways += [((600, 628), (_line(r) + 12, 120 + 26 * n)) for n, r in enumerate(rows)]
        for n, line in enumerate(self.ways):
            line.set_data(*(ways[n] if n < len(ways) else ([], [])))
