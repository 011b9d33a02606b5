"""The map of the course, drawn from what the lessons say of themselves."""

import textwrap
from itertools import combinations

from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from instruments import contents
from widgets.drawings.pictures import box, page, picture
from widgets.toolkit.panel import WIDTH, Panel

_TOP, _PITCH, _HIGH = 8, 74, 46  # CSS pixels: above the first row of boxes, from row to row, a box's height
_WIDE, _GAP, _WAY = 158, 14, 16  # a box's width at most, between boxes, and where an arrow passes between them
_LETTER = 6.4  # how wide a letter of a name is
_PALE, _DARK, _GREY = "#FBE3B0", "#8A5A00", "#8C8C8C"


def lessons() -> dict[str, contents.Lesson]:
    """{number: what the lesson says of itself}, in the order of the numbers."""
    paths = sorted((contents.ROOT / "lessons").glob("*.ipynb"))
    return {path.stem.partition("_")[0]: contents.described(path) for path in paths}


def _depths(course: dict[str, contents.Lesson]) -> dict[str, int]:
    """{number: how many lessons lie before it, on the longest way from the start}."""
    depths = {}
    while len(depths) < len(course):
        ready = [n for n in course if n not in depths and all(need in depths for need in course[n].needs)]
        if not ready:
            raise ValueError(f"lessons: {sorted(set(course) - set(depths))} build on each other, or on none of these")
        depths |= {n: 1 + max((depths[need] for need in course[n].needs), default=-1) for n in ready}
    return depths


def below(course: dict[str, contents.Lesson], goal: str) -> set[str]:
    """A lesson, and all that it builds on."""
    found, open_ = set(), [goal]
    while open_:
        number = open_.pop()
        found.add(number)
        open_ += [need for need in course[number].needs if need not in found]
    return found


def _ways(course: dict, depths: dict) -> list[list]:
    """Each arrow as its stops, a row each: a lesson, the rows that it passes between boxes, the lesson it leads to."""
    return [
        [need, *((need, number, row) for row in range(depths[need] + 1, depths[number])), number]
        for number in course
        for need in course[number].needs
    ]


def _cost(rows: list[list], links: list[tuple]) -> float:
    """How often arrows between neighboring rows cross, and then how far they lead sideways."""
    place = {stop: (depth, at) for depth, row in enumerate(rows) for at, stop in enumerate(row)}
    ends = [(place[start], place[end][1]) for start, end in links]
    cross = sum(a[0] == b[0] and (a[1] - b[1]) * (m - n) < 0 for i, (a, m) in enumerate(ends) for b, n in ends[:i])
    middles = {stop: x for stop, (x, _, _) in _placed(rows).items()}
    return cross + sum(abs(middles[start] - middles[end]) for start, end in links) / (8 * WIDTH)


def _ordered(course: dict, depths: dict) -> list[list]:
    """The rows of the map from the top, each from the left: stops of a row change places while that helps."""
    rows = [[n for n in course if depths[n] == depth] for depth in range(1 + max(depths.values()))]
    links = []
    for way in _ways(course, depths):
        for row, stop in enumerate(way[1:-1], depths[way[0]] + 1):
            rows[row].append(stop)
        links += zip(way, way[1:])
    cost, better = _cost(rows, links), True
    while better:
        better = False
        for row in rows:
            for i, j in combinations(range(len(row)), 2):
                row[i], row[j] = row[j], row[i]
                if (changed := _cost(rows, links)) < cost - 1e-9:
                    cost, better = changed, True
                else:
                    row[i], row[j] = row[j], row[i]
    return rows


def _placed(rows: list[list]) -> dict:
    """{stop: (middle, top, width)} of boxes and of ways between them, each row in the middle of the page."""
    places = {}
    for at, row in enumerate(rows):
        boxes = sum(isinstance(stop, str) for stop in row)
        spare = WIDTH - 8 - _WAY * (len(row) - boxes) - _GAP * (len(row) - 1)
        wide = min(_WIDE, spare / max(1, boxes))
        widths = [wide if isinstance(stop, str) else _WAY for stop in row]
        x = (WIDTH - sum(widths) - _GAP * (len(row) - 1)) / 2
        for stop, width in zip(row, widths):
            places[stop] = (x + width / 2, _TOP + at * _PITCH, width)
            x += width + _GAP
    return places


def _draw_way(axes, points: list[tuple], color: str):
    """An arrow from the foot of a box to the top of another, straight down where it passes between boxes."""
    (x, y), bend = points[0], 0.5 * (_PITCH - _HIGH)
    steps, codes = [(x, y)], [Path.MOVETO]
    for at, (x, y) in enumerate(points[1:], 1):
        before = steps[-1]
        steps += [(before[0], before[1] + bend), (x, y - bend), (x, y)]
        codes += [Path.CURVE4] * 3
        if at < len(points) - 1:
            steps.append((x, y + _HIGH))
            codes.append(Path.LINETO)
    look = {"arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.7, "zorder": 1}
    axes.add_patch(FancyArrowPatch(path=Path(steps, codes), color=color, **look))


def _draw_box(axes, number: str, lesson: contents.Lesson, place: tuple, chosen: bool):
    """A lesson: its number and name, and its minutes in the corner."""
    middle, top, width = place
    fill, edge = (_PALE, _DARK) if chosen else ("#ECECEC", _GREY)
    box(axes, middle - width / 2, top, width, _HIGH, fill, edgecolor=edge, zorder=2)
    left = middle - width / 2 + 7
    axes.text(left, top + 11, number, fontsize=9, weight="bold", va="center", zorder=3)
    if lesson.minutes:
        right = middle + width / 2 - 7
        text = f"{lesson.minutes} min"
        axes.text(right, top + 11, text, fontsize=8.5, color="#444444", ha="right", va="center", zorder=3)
    lines = textwrap.wrap(_name(lesson).partition(" ")[2], int((width - 10) / _LETTER))[:2]
    for at, line in enumerate(lines):
        y = top + (32 if len(lines) == 1 else 25.5 + 13 * at)
        axes.text(left, y, line, fontsize=9 if len(lines) == 1 else 8.5, va="center", zorder=3)


def _name(lesson: contents.Lesson) -> str:
    """The number and the name of a lesson, of its title '01 The roofline: ...' or '02. Programs'."""
    return lesson.title.partition(":")[0].replace(". ", " ", 1)


def _in_words(course: dict[str, contents.Lesson]) -> str:
    """Every lesson with its minutes and what it builds on."""
    return "; ".join(
        _name(lesson)
        + (f", {lesson.minutes} minutes" if lesson.minutes else "")
        + (f", after {' and '.join(lesson.needs)}" if lesson.needs else "")
        for lesson in course.values()
    )


def course_map(goal: str = "08") -> Panel:
    """A box for each lesson with its minutes, and an arrow to it from each lesson that it builds on.

    Args:
        goal: The number of a lesson; it and all that it builds on are marked.
    """
    course = lessons()
    depths = _depths(course)
    marked = below(course, goal) if goal in course else set()
    rows = _ordered(course, depths)
    places = _placed(rows)
    figure, axes = page(_TOP + _PITCH * len(rows) - (_PITCH - _HIGH) + 8)
    rank = {stop: at for row in rows for at, stop in enumerate(row)}
    entries = {n: sorted((way[-2] for way in _ways(course, depths) if way[-1] == n), key=rank.get) for n in course}
    for way in _ways(course, depths):
        end = places[way[-1]]
        arrivals = entries[way[-1]]
        into = end[0] + 22 * (arrivals.index(way[-2]) - (len(arrivals) - 1) / 2)
        points = [(places[way[0]][0], places[way[0]][1] + _HIGH)]
        points += [places[stop][:2] for stop in way[1:-1]] + [(into, end[1])]
        _draw_way(axes, points, _DARK if {way[0], way[-1]} <= marked else _GREY)
    for number, lesson in course.items():
        _draw_box(axes, number, lesson, places[number], number in marked)
    said = "An arrow leads from a lesson to those that build on it"
    if marked:
        name = _name(course[goal]).partition(" ")[2]
        said += f"; orange: {name} and what it builds on, {sum(course[n].minutes for n in marked)} minutes"
    return picture("The map of the course", figure, said, _in_words(course))
