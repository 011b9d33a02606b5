"""Stands in for `python -m grading.batch`: grades by a word in the notebook, and logs whom it graded.

python fake_worker.py LOG < JOB. The words: dies, hangs, waits (until LOG.go exists), pending, hint; all else is graded.
"""

import json
import os
import sys
import time
from pathlib import Path

log = Path(sys.argv[1])
learner, path, file, member, cell_seconds, seconds, seed = json.load(sys.stdin)
notebook = json.loads(Path(file).read_text())
word, exercise = notebook["cells"][0]["source"], notebook["metadata"]["bytes_first"]["exercise"]
with open(log, "a") as stream:
    stream.write(f"{learner}\n")
if word == "dies":
    print("a word before the end", file=sys.stderr)
    os._exit(3)
if word == "hangs":
    time.sleep(600)
while word == "waits" and not Path(f"{log}.go").exists():
    time.sleep(0.05)
task = {"id": "01.1", "title": "Count", "status": "failed", "points": 0, "pending_points": 0, "max_points": 2}
if word == "hint":
    place = {"output": "y", "first": [2, 4], "expected": 1.5, "actual": "nan", "wrong": 0.25}
    task |= {"hint": "<b>the tail</b> \x1b[31m of `y`", "diagnosis": "values", "place": place}
record = {"path": path, "file": file, "learner": learner, "exercise": exercise, "status": "graded", "points": 0}
print(json.dumps({**record, "max_points": 2, "gradable_points": 2, "tasks": [task], "seed": str(seed)}))
