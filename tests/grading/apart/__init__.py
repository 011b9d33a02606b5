"""Answers, attacks and files written apart from the grader, from the lines of what outsiders had found in it."""
