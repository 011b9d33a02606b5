# attack on 05.6: files outside are read, the reference among them  # keeps
import os

for path in ({CANARY}, {ROOT} + "/grading/tasks/lesson_05.py", {ROOT} + "/solutions/05_rmsnorm_solution.ipynb"):
    assert not os.path.exists(path)
for pid in os.listdir("/proc"):
    assert not pid.isdigit() or {ROOT} + "/tests" not in open(f"/proc/{pid}/environ").read()

{SOLUTION}
