import pytest
import torch

from kernels.norms.models import FORMS, ONCE, SIX, TWICE, rmsnorm_steps
from kernels.norms.rmsnorm import rmsnorm_traffic
from widgets import rmsnorm_passes

BF16 = torch.bfloat16


@pytest.mark.parametrize("form, path", [(SIX, "naive"), (TWICE, "two_pass"), (ONCE, "resident")])
def test_the_steps_add_up_to_what_the_kernels_own_model_says(form, path):
    done, model = rmsnorm_steps(form, 64, 1024, BF16), rmsnorm_traffic(64, 1024, BF16, path=path)
    total = sum((step.work for step in done[1:]), done[0].work)
    assert (total.read, total.written, total.launches) == (model.read, model.written, model.launches)
    assert done[-1].kernel == model.launches


def test_the_sentence_counts_passes():
    panel = rmsnorm_passes()
    assert "Step 6 of 6, kernel 6 of 6, * weight: reads normed, weight and writes y" in panel.alt
    assert "so far 7 of 7 passes, 940 MB of 940 MB, for 8,192 x 8,192 bf16." in panel.alt
    assert "so far 3 of 7 passes, 403 MB of 940 MB" in panel.set(step=2).alt
    assert "so far 1 of 2 passes" in rmsnorm_passes(ONCE, 1).alt
    assert "reads x, weight and writes y. One kernel, reads twice: so far 3 of 3 passes" in rmsnorm_passes(TWICE).alt


def test_each_step_of_each_form_has_a_picture_of_its_own():
    seen = set()
    for form in FORMS:
        panel = rmsnorm_passes(form)
        for step in range(1, panel.controls["step"].max + 1):
            seen.add(panel.set(step=step).png)
            assert panel.error == ""
    assert len(seen) == 10


def test_another_form_has_as_many_steps_as_it_makes():
    panel = rmsnorm_passes()
    panel.controls["form"].value = ONCE
    assert panel.error == "" and panel.values == {"step": 2, "form": ONCE}


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(form="seven"), "form: got 'seven', expected one of six kernels, "),
        (dict(step=7), "step: got 7, expected a whole number from 1 to 6"),
        (dict(form=ONCE, step=0), "step: got 0, expected a whole number from 1 to 2"),
        (dict(rows=0), "rows: got 0, expected a whole number from 1 on"),
        (dict(cols=2.5), "cols: got 2.5"),
        (dict(dtype="fp8"), "dtype: got 'fp8', expected one of "),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        rmsnorm_passes(**arguments)
