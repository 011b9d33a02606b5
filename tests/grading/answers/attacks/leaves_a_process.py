# attack on 05.6: a process of its own lives on  # keeps
import subprocess, sys

code = "import time; time.sleep(7777)"
subprocess.Popen([sys.executable, "-I", "-S", "-c", code], env={}, start_new_session=True)

{SOLUTION}
