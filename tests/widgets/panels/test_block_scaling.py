import re

import numpy as np
import pytest
import torch

from tests.widgets.tools import moves
from widgets import block_scaling
from widgets.panels.block_scaling import (
    BLOCKS,
    COLUMNS,
    DATA,
    FORMATS,
    GAUSS,
    HEAVY,
    LAPLACE,
    NONE,
    ONE,
    SCALES,
    SOME,
    matrix,
)

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def told(panel) -> dict:
    """The figures of the sentence."""
    said = panel.alt.replace(",", "")
    names = {"bits": r"([\d.]+) bits", "error": r"error ([\d.]+)%", "rest": r"outliers ([\d.]+)%"}
    names |= {
        "zero": r"([\d.]+)% of the values become",
        "cut": r"([\d.]+)% saturate",
        "unused": r"([\d.]+)% of a group's range is unused",
    }
    return {name: float(found[1]) for name, pattern in names.items() if (found := re.search(pattern, said))}


def by_hand(x: np.ndarray, block: int, up: bool):
    """MXFP4 without the course's code: (what x becomes, the share of a block's range above its values, cut off)."""
    parts = np.abs(x).reshape(-1, block)
    most = parts.max(1, keepdims=True)
    scale = 2.0 ** (np.ceil(np.log2(most / 6)) if up else np.floor(np.log2(most)) - 2)
    near = E2M1[np.abs(parts[..., None] / scale[..., None] - E2M1).argmin(-1)]
    return near * scale, (1 - most / scale / 6).clip(0).mean(), (parts / scale > 6).mean()


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("scales, up", [("E8M0", False), ("E8M0, rounded up", True)])
def test_mxfp4_counted_by_hand(data, scales, up):
    panel = block_scaling(data, SOME, 30, scales=scales)
    x, out = (each.numpy() for each in matrix(data, SOME, 30))
    held, unused, cut = by_hand(x.astype(float), 32, up)
    size, out = np.abs(x).reshape(-1, 32), out.reshape(-1, 32)
    expected = {
        "bits": 4.25,
        "error": np.linalg.norm(held - size) / np.linalg.norm(size) * 100,
        "rest": np.linalg.norm((held - size)[~out]) / np.linalg.norm(size[~out]) * 100,
        "zero": (held == 0).mean() * 100,
        "cut": cut * 100,
        "unused": unused * 100,
    }
    assert told(panel) == pytest.approx(expected, rel=0.006)
    assert ("the scheme is mxfp4" in panel.alt) == (not up)


def test_torchs_fp8_per_row():
    x, _ = matrix(LAPLACE, ONE, 64)
    scale = x.abs().amax(1, keepdim=True) / 448
    held = (x / scale).to(torch.float8_e4m3fn).float() * scale
    panel = block_scaling(LAPLACE, ONE, 64, "e4m3", "row", "fp32")
    assert told(panel)["error"] == pytest.approx(100 * ((held - x).norm() / x.norm()).item(), rel=0.01)
    assert (
        "8.125 bits" in panel.alt
        and "the scheme is fp8_row" in panel.alt
        and told(panel)["cut"] == told(panel)["unused"] == 0
    )


def test_nvfp4_errs_less_than_mxfp4():
    """Of data of any tail: E4M3 scales for 16 leave less of the range unused and cut off less than powers of two."""
    for data in DATA:
        mx, nv = block_scaling(data, NONE), block_scaling(data, NONE, 1, "e2m1", "16 of a row", "E4M3, and an fp32")
        assert "4.508 bits" in nv.alt and "the scheme is nvfp4" in nv.alt and "rest" not in told(nv)
        assert told(nv)["error"] < 0.85 * told(mx)["error"]


def test_one_outlier_takes_a_tensors_bits_and_spares_other_blocks():
    tensor, row, block = (told(block_scaling(block=name)) for name in ("tensor", "row", "16 of a row"))
    assert tensor["zero"] > 95 and 5 < block["zero"] < row["zero"] < 20
    assert tensor["rest"] > 95 and block["rest"] < 15


def test_outliers_are_as_many_as_told():
    counts = {NONE: 0, ONE: 1, SOME: 40, COLUMNS: 32}
    for outliers, count in counts.items():
        x, out = matrix(HEAVY, outliers, 100.0)
        assert out.sum() == count
        plain, _ = matrix(HEAVY, NONE, 1.0)
        assert (x == plain)[~out].all() and plain.square().mean() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_every_combination_is_drawn(format):
    panel = block_scaling(format=format)
    bits = 4 if format in ("e2m1", "int4") else 8
    for block in BLOCKS:
        for scales in SCALES:
            panel.set(block=block, scales=scales)
            assert bits <= told(panel)["bits"] <= bits + 2.01 and panel.error == ""


def test_every_control_moves_the_picture():
    moves(block_scaling(), larger=9, outliers=COLUMNS, data=HEAVY, format="int8", block="row", scales="fp32")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(data="uniform"), f"data: got 'uniform', expected one of {GAUSS}"),
        (dict(larger=2000), "larger: got 2000|expected 1 to 1,024"),
        (dict(block="17"), "block: got '17'"),
        (dict(scales="fp16"), "scales: got 'fp16'"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(Exception, match=said):
        block_scaling(**arguments)
