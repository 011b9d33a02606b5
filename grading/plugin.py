"""Runs one notebook under nbval, and mends what nbval gets wrong for grading.

    python plugin.py NOTEBOOK LOG --cell-seconds S

A reply of status `error` fails its cell even where nothing was printed, a dead kernel is noticed at once, and markers
and time-outs turn no other cell into a pass. LOG gets a line of JSON at each cell's start and end: how the run went.
Verdicts are formed elsewhere, from what child.py reports.
"""

import json
import os
import queue
import re
import sys
import time

sys.modules.setdefault("rfc3987_syntax", None)  # as in grading/__init__.py, which says why

import nbval.plugin  # noqa: E402
import pytest  # noqa: E402

OPTIONS = "-q -p no:cacheprovider -p no:terminalreporter -p nbval.plugin --nbval-lax --nbval-current-env --rootdir ."


class Kernel(nbval.plugin.RunningKernel):
    """nbval's kernel, which remembers the last reply and notices the end of its process."""

    def get_message(self, stream, timeout=None):
        end = time.monotonic() + (timeout or 1e9)
        while time.monotonic() < end:
            try:
                message = super().get_message(stream, timeout=0.25)
            except queue.Empty:
                if not self.is_alive():
                    raise RuntimeError("the kernel died") from None
                continue
            if stream == "shell":
                self.reply = message["content"]
            return message
        raise queue.Empty()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    item.parent.timed_out = False
    item.options.update(check=False, skip=False, check_exception=False)
    kernel = item.parent.kernel
    kernel.reply, alive = {}, kernel.is_alive()
    write(item, event="start")
    status, text = "ok", ""
    try:
        yield
    except BaseException as error:
        status, text = "error", str(error)
        raise
    finally:
        if not alive:
            status, text = "not_run", "a cell before it ended the process"
        elif item.parent.timed_out:
            status, text = "timeout", "the cell ran out of time"
        elif not kernel.is_alive():
            status, text = "died", "the process that ran the cell ended"
        elif kernel.reply.get("status") == "error":
            status, text = "error", f"{kernel.reply.get('ename')}: {kernel.reply.get('evalue')}"
            text = re.sub(r" \(\d+\.py, line \d+\)$", "", text)  # IPython's name for the cell, in a SyntaxError
        traceback = "".join(map(str, kernel.reply.get("traceback", [])))
        lines = re.findall(r"Cell In\[\d*\], line (\d{1,6})", re.sub(r"\x1b\[[0-9;]*m", "", traceback))
        write(item, event="end", status=status, text=text[:2000], line=lines[-1] if lines else "0")


def write(item, **record):
    with open(sys.argv[2], "a", encoding="utf-8") as log:
        log.write(json.dumps({**item.cell.metadata.get("bytes_first", {}), **record}) + "\n")


if __name__ == "__main__":
    nbval.plugin.RunningKernel = Kernel
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = [*OPTIONS.split(), "-c", os.devnull, "--nbval-cell-timeout", sys.argv[4], sys.argv[1]]
    sys.exit(pytest.main(options, plugins=[sys.modules[__name__]]))
