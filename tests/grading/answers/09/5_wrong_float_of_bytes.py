# wrong, form: expected an int
import torch
from instruments.backend import tl, triton

FORMATS = {"e4m3": (3, -6, 448.0), "e2m1": (1, 0, 6.0)}  # bits of mantissa, exponent of the smallest normal, largest
SCHEMES = {  # format of the values, rows and columns that share a scale (None: all of them), format of a scale
    "bf16": ("bf16", None, None, ""),
    "fp8_tensor": ("e4m3", None, None, "fp32"),
    "fp8_row": ("e4m3", 1, None, "fp32"),
    "fp8_128x128": ("e4m3", 128, 128, "fp32"),
    "mxfp8": ("e4m3", 1, 32, "e8m0"),
    "mxfp4": ("e2m1", 1, 32, "e8m0"),
    "nvfp4": ("e2m1", 1, 16, "e4m3"),  # beside its scales: one fp32 number for the tensor
}


def nearest(values, mantissa, least, largest):
    """Rounded to nearest, ties to even, saturating."""
    step = torch.exp2((torch.frexp(values).exponent - 1).clamp(min=least).float() - mantissa)
    return ((values / step).round() * step).clamp(-largest, largest)


def round_trip(x, name):
    """What a scheme leaves of x: [rows, cols], fp32, quantised and dequantised."""
    form, height, width, scale_format = SCHEMES[name]
    if form == "bf16":
        return x.bfloat16().float()
    rows, cols = x.shape
    height, width = height or rows, width or cols
    padded = torch.nn.functional.pad(x, (0, -cols % width, 0, -rows % height))
    blocks = padded.unflatten(0, (-1, height)).unflatten(2, (-1, width))  # [blocks, height, blocks, width]
    scale = blocks.abs().amax((1, 3), keepdim=True) / FORMATS[form][2]
    if scale_format == "e8m0":
        fraction, exponent = torch.frexp(scale)
        scale = torch.exp2(exponent.float() - (fraction == 0.5).float())
    elif scale_format == "e4m3":
        whole = scale.max() / 448
        scale = nearest(scale / whole, *FORMATS["e4m3"]) * whole
    scale = torch.where(scale > 0, scale, 1.0)
    back = nearest(blocks / scale, *FORMATS[form]) * scale
    return back.flatten(2, 3).flatten(0, 1)[:rows, :cols]


def stored_bytes(name, rows, cols):
    form, height, width, scale_format = SCHEMES[name]
    bits = {"bf16": 16, "e4m3": 8, "e2m1": 4}[form]
    scale_bytes = {"": 0, "fp32": 4, "e8m0": 1, "e4m3": 1}[scale_format]
    blocks = -(-rows // (height or rows)) * -(-cols // (width or cols))  # rounded up, along both axes
    return rows * cols * bits / 8 + blocks * scale_bytes + 4 * (name == "nvfp4")


def choose(x, most_error, most_bytes):
    fits = []
    for name in SCHEMES:
        error = ((round_trip(x, name) - x).norm(dim=1) / x.norm(dim=1)).max().item()
        size = stored_bytes(name, *x.shape)
        if error <= most_error and size <= most_bytes:
            fits.append((size, name))
    return min(fits)[1] if fits else "none"
