"""Triton's interpreter, mended for a course: it shares a process with the compiler, has its types and guards memory.

Triton decides once per process, by an environment variable, whether kernels are compiled or interpreted, and the two
spoil each other. Here a launch is interpreted where it is asked for: `launch()` rewrites the kernel with Triton's own
interpreter, opens the interpreter's patch of triton.language around the launch, and closes it again, so that the same
kernel can be compiled before, between and after.

| file | mends |
|---|---|
| floats.py | bf16, FP8, booleans, NaNs, the rounding of fma and of sums |
| memory.py | out-of-bounds accesses, undefined lanes, hints that do not hold: `Guard`, `Argument`, `Launch` |
| grid.py | the types of arguments, the language inside a kernel, grids: `launch` |
| caches.py | time: types and shapes are made once |

Each says what the stock interpreter does and in which versions. With all of them, every operation's type is that of
compiled code, and so is every value whose rounding is defined (tests/instruments/test_promotion.py). What remains:

* Compiled code fuses x * y + z into one rounding where it can; here it is two.
* Division, exp2, rsqrt and the like round correctly or nearly so here; compiled, fp32 `/` is off by up to two units in
  the last place, and transcendental functions by a few.
* Dots and sums add up in an order of their own, and fp32 dots are not rounded to TF32.
* A variable may change its type inside a loop or on one side of an `if`, and a branch that no program takes may hold
  anything; the compiler refuses both, and `compiled.front_end` says so without a GPU.
* A float beyond an integer type, and a shift by more than a type's bits, give anything on either side.

Everything here uses Triton's private names and is tested on 3.6, 3.7 and 3.9; backend.py tests itself on others.
"""

from instruments.interpreter import caches, floats, memory
from instruments.interpreter.grid import call_device_function, launch, line, running
from instruments.interpreter.memory import Argument, Guard, Launch, language_lock

for part in (floats, memory, caches):
    part.install()  # once: this module is imported once

__all__ = ["Argument", "Guard", "Launch", "call_device_function", "language_lock", "launch", "line", "running"]
