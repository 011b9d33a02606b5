"""Exercise 99: three times a tensor."""

from grading.tasks import Case, Mistake, Task, returns, tensor

EXERCISE = "99_toy"


@returns(y="fp32")
def thrice(x, *, times=3):
    return times * x


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
        mistakes=(Mistake("x was doubled", "Multiply by three.", times=2),),
        minimum_bytes=lambda x: {"x": x.nbytes, "returned 0": x.nbytes},
    ),
)
