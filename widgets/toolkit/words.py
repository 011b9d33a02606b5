"""Numbers as prose writes them."""

import math

_LARGE = ("", "k", "M", "G", "T", "P", "E")
_SMALL = ("", "m", "µ", "n", "p")


def number(value: float, unit: str = "", digits: int = 4) -> str:
    """So many digits that count, thousands parted by commas, the unit behind: 1234.567, 'MB' -> '1,235 MB'."""
    if value == 0 or 1e-3 <= abs(value) < 1e15:
        value = float(f"{value:.{digits}g}") if abs(value) < 1000 else value
        places = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{digits}g}"
    return f"{text} {unit}" if unit else text


def _scaled(value: float, unit: str, kilo: str = "k") -> str:
    """Three digits that count and the prefix that keeps the number between 1 and 1,000."""
    if not value or not math.isfinite(value):
        return f"{value:g} {unit}"
    # The float that three digits round to decides, so that 999.9 becomes 1 of the next prefix.
    power = math.floor(math.log10(abs(float(f"{value:.3g}"))) / 3)
    power = max(1 - len(_SMALL), min(power, len(_LARGE) - 1))
    prefix = _LARGE[power] if power >= 0 else _SMALL[-power]
    scaled = value / 1000**power
    text = f"{float(f'{scaled:.3g}'):,.15g}" if abs(scaled) < 1e15 else f"{scaled:.3g}"
    return f"{text} {kilo if prefix == 'k' else prefix}{unit}"


def size(nbytes: float) -> str:
    """Bytes in powers of 1,000, as bandwidths are given: 33570816 -> '33.6 MB'."""
    return _scaled(nbytes, "B", kilo="K")


def time(seconds: float) -> str:
    """Seconds: 7e-6 -> '7 µs'."""
    return _scaled(seconds, "s")


def rate(per_second: float, unit: str = "FLOP/s") -> str:
    """A rate: 9.89e14 -> '989 TFLOP/s'."""
    return _scaled(per_second, unit)


def times(count: float, digits: int = 3) -> str:
    """How often: 1 -> 'once', 2.5 -> '2.5 times'."""
    count_text = number(count, digits=digits)
    return "once" if count_text == "1" else f"{count_text} times"


def compared(ratio: float, digits: int = 3) -> str:
    """One thing beside another that is `ratio` times it: 3.5 -> '3.5 times less', 0.5 -> 'twice as much'."""
    less, more = number(ratio, digits=digits), number(1 / ratio, digits=digits)
    if "1" in (less, more):
        return "as much"
    return f"{less} times less" if ratio > 1 else "twice as much" if more == "2" else f"{more} times as much"
