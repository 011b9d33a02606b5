"""The tables of answers: nothing in them is lost, and what is handed in together covers them all."""

import ast

import pytest
from corpora import submissions
from grading_tools import Answer, table_files


@pytest.mark.parametrize("path", table_files(), ids=lambda path: path.stem)
def test_no_name_comes_twice_in_a_table(path):
    """Of two entries with one name a dictionary keeps the last."""
    for table in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(table, ast.Dict):
            names = [key.value for key in table.keys if isinstance(key, ast.Constant)]
            assert not {name for name in names if names.count(name) > 1}


def test_submissions_hold_an_answer_to_each_task_until_all_were_handed_in():
    answers = [Answer(name, task, "", True) for task, names in {"1": "abc", "2": "d"}.items() for name in names]
    for again, expected in ((True, ["ad", "bd", "cd"]), (False, ["ad", "b", "c"])):
        made = submissions("x", answers, again)
        assert ["".join(answer.name for answer in held) for _, held in made] == expected
