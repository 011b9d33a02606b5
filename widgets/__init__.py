"""Panels with sliders, predictions, and kernels' sources, for the lessons."""

from widgets.fusion_savings import fusion_savings
from widgets.panel import Panel
from widgets.predict import predict, predictions
from widgets.roofline import roofline
from widgets.source import show_source

__all__ = ["Panel", "fusion_savings", "predict", "predictions", "roofline", "show_source"]
