"""Many boxes of one colour as one path: matplotlib draws it as fast as a single bar."""

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path


class Boxes(PathPatch):
    """Boxes in data coordinates that `place` puts anew; none until then. look: as of any patch."""

    def __init__(self, axes, colour: str, **look):
        super().__init__(Path(np.empty((0, 2))), **{"facecolor": colour, "linewidth": 0, "animated": True, **look})
        axes.add_patch(self)

    def place(self, x, y, width, height):
        """Left, bottom, width and height of each box: numbers, or arrays of one length."""
        x, y, width, height = (each.ravel() for each in np.broadcast_arrays(x, y, width, height))
        visible = (width != 0) & (height != 0)
        x, y, width, height = (each[visible].astype(float) for each in (x, y, width, height))
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        points = np.array(corners).transpose(2, 0, 1).reshape(-1, 2)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        self.set_path(Path(points, np.tile(np.uint8(codes), len(x)), readonly=True))
