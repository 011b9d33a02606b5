"""What an exception in a kernel, or a compiler's complaint about one, means, and what to do about it."""

import re

#: (pattern in the error's text, pattern in the learner's line that raised it, the fault or "" for the error's own
#: words, what to do); the patterns' groups fill in {0}, {1}
MEANINGS = (
    (
        r"^axis [\[\d]|cannot be interpreted as an integer|unhashable type",
        r"\btl\.(max|min|sum)\((?!.*axis)",
        "the second argument of tl.{0} is an axis",
        "tl.{0} reduces one tile to one number; tl.maximum and tl.minimum compare two element by element, and + adds "
        "them.",
    ),
    (
        r"ambiguous|iterable|tensor|constexpr|'[<>]'",
        r"(?<![\w.])(max|min)\(",
        "",
        "Inside a kernel, `{0}` is Python's: use tl.{0}imum to compare two tiles element by element, tl.{0} to reduce "
        "one.",
    ),
    (
        r"not iterable|ambiguous",
        r"(?<![\w.])(sum|any|all)\(",
        "",
        "Inside a kernel, `{0}` is Python's: tl.sum and the like reduce a tile.",
    ),
    (
        r"size 1|scalar|must be (?:real number|Tensor)|not 'tensor'|not tensor",
        r"(?<![\w.])(math|np|numpy|torch)\.\w+\(",
        "",
        "{0} knows no tiles of a kernel: use a function of tl.",
    ),
    (
        r"Loop-carried variable (\w+) has initial type (?!<)\S+ but is re-assigned to <",
        "",
        "{0} starts as one number and becomes a tile in the loop, and a variable keeps its type there",
        "Start with a tile: tl.zeros([BLOCK], tl.float32), or tl.full([BLOCK], value, tl.float32).",
    ),
    (
        r"Loop-carried variable (\w+) has initial type (?!<)(\S+) but is re-assigned to (?!<)(\S+) in",
        "",
        "{0} starts as {1} and becomes {2} in the loop, and a variable keeps its type there",
        "Start with a value of the type that it has in the loop: 0.0 is fp32, 0 is int32.",
    ),
    (
        r"Loop-carried variable (\w+) has initial type",
        "",
        "{0} changes its dtype or its shape in the loop, and a variable keeps its type there",
        "Start with a tile of the dtype and shape that are assigned in the loop, or convert with `.to(...)`.",
    ),
    (
        r"Expected dtype \[.*\] but got (fp16|bf16|fp8\w*)",
        "",
        "",
        "Convert right after the load, `.to(tl.float32)`: functions such as tl.exp and tl.sigmoid take no {0}.",
    ),
    (r"to <\[.*\], (fp8\w*)>", "", "", "An integer does not become {0}: give masked lanes a float, other=0.0."),
    (
        r"Value argument cannot be block type if pointer argument is not a block",
        "",
        "the store has one address and gets a whole tile",
        "Reduce the tile to one number first (tl.sum, tl.max), or give the store a tile of addresses.",
    ),
    (
        r"Cannot access global variable (\w+)",
        "",
        "",
        "Inside a kernel only triton.language and constexpr globals can be used: pass {0} as an argument, or make it a "
        "tl.constexpr.",
    ),
    (
        r"Ternary expression with dynamic condition",
        "",
        "",
        "`a if condition else b` decides once, not for each element: use tl.where.",
    ),
    (r"[Ll]ogical operator|boolean operator", "", "", "Combine masks with & and |, each comparison in brackets."),
    (
        r"module 'triton.language' has no attribute '(\w+)'",
        "",
        "",
        "There is no tl.{0}: write it with functions that tl has.",
    ),
    (
        r"exceeds triton maximum tensor numel",
        "",
        "",
        "A tile came out far larger than meant: a [BLOCK, 1] and a [BLOCK] make [BLOCK, BLOCK] together. Check [:, "
        "None] and [None, :].",
    ),
    (
        r"make_shape_compatible|incompatible dimensions|could not be broadcast",
        "",
        "",
        "Two tiles of different shapes meet: a column of offsets takes [:, None], a row of them [None, :].",
    ),
)


def meaning(text: str, line: str = "") -> tuple[str, str]:
    """(the fault, what to do) of an error with this text, raised in this line of the learner's code; "" where nothing
    is known beyond the error's own words."""
    for error, code, fault, advice in MEANINGS:
        at, by = re.search(error, text), re.search(code, line)
        if at and by:
            known = [group for match in (at, by) for group in match.groups() if group]
            return fault.format(*known), advice.format(*known)
    return "", ""
