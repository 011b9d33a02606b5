"""Exercise 99: three times a tensor."""

from grading.tasks import Case, Slip, Task, gives, tensor

EXERCISE = "99_toy"


@gives(y="fp32")
def thrice(x):
    return 3 * x


def normal(*shape):
    return lambda rng: {"x": tensor(rng.normal(0, 1, shape), "fp32")}


TASKS = (
    Task(
        id="99.1",
        title="Three times",
        points=2,
        functions={"thrice": thrice},
        kernel=True,
        cases=(Case("3 x 5 fp32", normal(3, 5)), Case("2 x 700 fp32", normal(2, 700))),
        slips=(Slip("x was doubled", "Multiply by three.", "3 * x -> 2 * x", answer="3 * tl.load -> 2 * tl.load"),),
        minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": x.nbytes},
    ),
)
