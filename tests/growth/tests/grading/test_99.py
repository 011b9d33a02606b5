"""Exercise 99: right answers in several styles pass, each plausible mistake fails with the hint made for it."""

from grading_tools import answer_tests, answers, edited

EXERCISE = "99_toy"
SOLUTION = answers(EXERCISE)
RIGHT = {
    "added up": (
        "99.1",
        edited(
            SOLUTION["99.1"],
            ("3 * tl.load(x_ptr + o, mask=mask)", "x + x + x"),
            ("    tl.store", "    x = tl.load(x_ptr + o, mask=mask)\n    tl.store"),
        ),
    ),
    "small tiles": ("99.1", edited(SOLUTION["99.1"], ("256", "128"))),
}
WRONG = {"no mask": ("99.1", [(", mask=mask", "")], "out_of_bounds", [])}
TILES = {"99.1": 1}

test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
