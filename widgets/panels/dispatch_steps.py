"""The panel of expert parallelism: eight rows of each of two ranks on their way to their experts and back."""

import numpy as np
import torch

from kernels.moe.permute import permute_reference
from widgets.drawings.moe import COLOURS
from widgets.drawings.pictures import page
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, RED, Example, Panel, menu, whole

EXAMPLE = Example(entry="3", text="Each rank sorts what arrived by expert", arguments={"step": 2})

RANKS, EXPERTS, TOP_K = 2, 4, 2
#: {name: the experts of each token, on rank 0 and on rank 1}; a rank has two experts
ROUTINGS = {
    "any": (((2, 0), (0, 3), (1, 2), (3, 2)), ((0, 2), (1, 0), (1, 3), (1, 0))),
    "popular on rank 0": (((1, 0), (0, 3), (1, 0), (0, 2)), ((0, 1), (1, 0), (1, 3), (0, 1))),
}
NAMES = ("abcd", "efgh")  # of the tokens
CHOSEN, SORTED, ARRIVED, GROUPED, BACK, DONE = range(6)  # steps


def rows_of(routing: str) -> list:
    """[for each of the five states the rows of each rank, [(token's name, expert)]]."""
    chosen = [[(name, e) for name, own in zip(names, of) for e in own] for names, of in zip(NAMES, ROUTINGS[routing])]
    ranks = []
    for names, own in zip(NAMES, ROUTINGS[routing]):
        experts = torch.tensor(own, dtype=torch.int32)
        runs = permute_reference(experts, EXPERTS)
        of_row = experts.flatten()[runs.rows.flatten().argsort()].tolist()
        ranks.append([(names[token], expert) for token, expert in zip(runs.tokens.tolist(), of_row)])
    per_rank = EXPERTS // RANKS
    arrived = [[row for rows in ranks for row in rows if row[1] // per_rank == rank] for rank in range(RANKS)]
    grouped = [sorted(rows, key=lambda row: row[1]) for rows in arrived]  # Python's sort is stable
    return [chosen, ranks, arrived, grouped, ranks]


def dispatch_steps(step: int = 5, routing: str = "any") -> Panel:
    """Four tokens on each of two ranks, two of four experts for each: where their rows are from step to step.

    Args:
        step: 0 shows the choices; 1 sorts them by expert, 2 is the dispatch, 3 sorts what arrived, 4 sends results
            back, 5 adds them up.
        routing: One of ROUTINGS.
    """
    picture = _Picture()

    def draw(step, routing):
        states = rows_of(routing)
        picture.show(states, step)
        (own, away), (away_1, own_1) = (
            [sum(expert // 2 == rank for _, expert in rows) for rank in range(RANKS)] for rows in states[SORTED]
        )
        crossing = away + away_1
        if step == CHOSEN:
            return "Four tokens on each rank, each with two of four experts: eight rows. Rank 0 has experts 0 and 1."
        if step == SORTED:
            return (
                "Each rank sorts its rows by expert, and so by rank. "
                f"Rank 0 keeps {own} and sends {away}; rank 1 keeps {own_1} and sends {away_1}. "
                "They tell each other these counts."
            )
        if step == ARRIVED:
            return (
                f"Dispatch: {crossing} of 16 rows cross the link. Rank 0 now has {own + away_1} rows and rank 1 "
                f"{own_1 + away}, by the rank they came from."
            )
        if step == GROUPED:
            return (
                "Each rank sorts what arrived by expert, and each expert multiplies its rows. No row crosses the link."
            )
        if step == BACK:
            return f"Results go back in the order of arrival: {crossing} rows cross the link again."
        return (
            "Combine: each token adds up its two results, times their gates. One GPU with all experts gives the same."
        )

    controls = {"step": whole("step", CHOSEN, DONE, DONE), "routing": menu("choices", ROUTINGS, "any")}
    return Panel("Rows between two ranks", picture.figure, controls, draw).set(step=step, routing=routing)


_WORDS = ("choices", "sorted", "arrived", "by expert", "results back", "output")
_LEFT = (104, 440)  # of the ranks
_WIDE, _HIGH, _PITCH = 24, 24, 54
_MOST = 13  # rows of a rank


def _line(at: int) -> float:
    return 44 + _PITCH * at


class _Picture:
    """A line for each state of the rows, rank 0 to the left and rank 1 to the right; red lines cross the link."""

    def __init__(self):
        self.figure, axes = page(368)
        edge = {"edgecolor": BLACK, "linewidth": 0.8}
        for rank, left in enumerate(_LEFT):
            middle = left + _MOST * _WIDE / 2
            own = f"{2 * rank} and {2 * rank + 1}"
            axes.text(middle, 16, f"rank {rank}: experts {own}", fontsize=9.5, weight="bold", ha="center", va="center")
        axes.plot([428, 428], [30, 350], color="#999999", linewidth=1, linestyle=":")
        for at, words in enumerate(_WORDS):
            axes.text(92, _line(at) + 12, words, fontsize=9, ha="right", va="center")
        self.boxes = [Boxes(axes, COLOURS[expert], **edge) for expert in range(EXPERTS)]
        self.outputs = Boxes(axes, "#ececec", **edge)
        (self.ways,) = axes.plot([], [], color=RED, linewidth=1.3, alpha=0.7, animated=True, zorder=2)
        word = {"fontsize": 9, "ha": "center", "va": "center", "animated": True}
        self.words = [
            [[axes.text(left + (n + 0.5) * _WIDE, _line(at) + 12, "", **word) for n in range(_MOST)] for left in _LEFT]
            for at in range(len(_WORDS))
        ]

    def show(self, states: list, step: int):
        """states: as `rows_of` gives them."""
        for expert, boxes in enumerate(self.boxes):
            places = [
                (left + n * _WIDE, _line(at))
                for at, ranks in enumerate(states[: step + 1])
                for left, rows in zip(_LEFT, ranks)
                for n, (_, own) in enumerate(rows)
                if own == expert
            ]
            x, y = np.array(places).reshape(-1, 2).T
            boxes.place(x + 1, y, _WIDE - 2, _HIGH)
        for at, ranks in enumerate(self.words):
            for rank, texts in enumerate(ranks):
                rows = states[at][rank] if at <= min(step, BACK) else []
                for n, text in enumerate(texts):
                    text.set_text(rows[n][0] + "'" * (at == BACK) if n < len(rows) else "")
        done = step >= DONE
        for rank, texts in enumerate(self.words[DONE]):
            for n, text in enumerate(texts[: len(NAMES[rank])]):
                text.set_text(NAMES[rank][n] if done else "")
        x = np.concatenate([left + _WIDE * np.arange(4) for left in _LEFT])
        self.outputs.place(x + 1, _line(DONE), (_WIDE - 2) * done, _HIGH)
        lines = []
        for at in (ARRIVED, BACK):
            if step >= at:
                lines += self._crossings(states, at)
        xs, ys = [], []
        for (x0, y0), (x1, y1) in lines:
            xs += [x0, x1, np.nan]
            ys += [y0, y1, np.nan]
        self.ways.set_data(xs, ys)

    def _crossings(self, states: list, at: int) -> list:
        """Lines of the rows that change their rank between the state before `at` and `at`."""
        places = [
            {
                row: (rank, _LEFT[rank] + (n + 0.5) * _WIDE)
                for rank, rows in enumerate(state)
                for n, row in enumerate(rows)
            }
            for state in (states[at - 1], states[at])
        ]
        return [
            ((places[0][row][1], _line(at - 1) + _HIGH), (places[1][row][1], _line(at)))
            for row in places[0]
            if places[0][row][0] != places[1][row][0]
        ]
