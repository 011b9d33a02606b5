"""Every published answer gets full marks from `check`, and its kernels compile for sm_90 without spills."""

import nbformat
import pytest
from grading_tools import full_marks, module_of, verdict_of

from grading.notebook import inputs
from grading.submission import LEFT_OUT_TAG
from grading.tasks import exercises, tasks_of
from instruments.compiled import compiled
from instruments.release import ROOT, grade_id
from instruments.start import notebook_of

TASKS = [(exercise, task) for exercise in sorted(exercises()) for task in tasks_of(exercise)]
KERNELS = [(exercise, task) for exercise, task in TASKS if task.kernel]


def source_of(exercise: str, task) -> str:
    """The code cells that `grade` runs, from the second one to the task's answer."""
    sources = []
    cells = [c for c in nbformat.read(ROOT / notebook_of(exercise, "solutions"), as_version=4).cells if "outputs" in c]
    for cell in cells[1:]:
        if not grade_id(cell).startswith("check") and LEFT_OUT_TAG not in cell.metadata.get("tags", []):
            sources.append(cell.source)
        if grade_id(cell) == f"answer_{task.id.replace('.', '_')}":
            break
    return "\n\n\n".join(sources)


@pytest.mark.parametrize("exercise, task", TASKS, ids=[task.id for _, task in TASKS])
def test_a_published_answer_gets_full_marks(exercise, task):
    verdict = verdict_of(task.id, source_of(exercise, task))
    assert full_marks(verdict) and verdict.proved, str(verdict)


@pytest.mark.parametrize("exercise, task", KERNELS, ids=[task.id for _, task in KERNELS])
def test_the_kernels_of_a_published_answer_do_not_spill(exercise, task):
    """In the call with the largest tensor, whose tiles are the largest."""
    module = module_of(source_of(exercise, task))
    calls = [(task.function(index), inputs(task.id, case.name)) for index, case in enumerate(task.cases)]
    name, arguments = max(calls, key=lambda call: max(getattr(value, "nbytes", 0) for value in call[1]))
    for kernel in compiled(getattr(module, name), *arguments, arch=90):
        assert kernel.spills == 0, str(kernel)
