# attack on 05.6: files outside are written  # keeps
import os

for path in ({CANARY}, {CANARY} + ".new", {ROOT} + "/was-here", "/proc/1/cwd/was-here", "/usr/was-here"):
    try:
        open(path, "a").write("was here")
    except OSError:
        pass

{SOLUTION}
