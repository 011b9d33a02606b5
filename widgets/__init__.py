"""Panels with sliders, predictions, and kernels' sources, for the lessons."""

from widgets.coalescing import coalescing
from widgets.fusion_chain import fusion_chain
from widgets.fusion_savings import fusion_savings
from widgets.l2_order import l2_order
from widgets.occupancy import occupancy
from widgets.panel import Panel
from widgets.predict import predict, predictions
from widgets.roofline import roofline
from widgets.source import show_source
from widgets.tile_intensity import tile_intensity
from widgets.watch import watch

__all__ = [
    "Panel",
    "coalescing",
    "fusion_chain",
    "fusion_savings",
    "l2_order",
    "occupancy",
    "predict",
    "predictions",
    "roofline",
    "show_source",
    "tile_intensity",
    "watch",
]
