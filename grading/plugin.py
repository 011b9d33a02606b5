"""The pytest plugin that makes nbval fit for grading, and the program that runs one notebook under it.

    python grading/plugin.py NOTEBOOK LOG --cell-seconds S [--enter JSON]

nbval executes the cells and checks that they ran. Mended here: a reply of status `error` fails its cell even where
nothing was printed (UsageError), a dead kernel is noticed at once, a flood of output ends the run, and after a cell
that ran out of time the ones that follow stand for themselves. What each cell did goes to LOG, one JSON line each when
it starts and when it ends, by role and task, never by position. The log says only how the run went: verdicts come from
grading/judge.py, outside. What the kernel sends may be forged, huge or endless: it is counted, cut, and never believed.

The kernel is started through the words that --enter lists, which put it into the jail's inner ring; it is spoken to
through sockets in its own folder, because it has no network. This file imports nothing of the course, so that the
kernels it starts inherit no path to it.
"""

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import time
from pathlib import Path

sys.modules.setdefault("rfc3987_syntax", None)  # as in grading/__init__.py, which says why

import nbval.kernel  # noqa: E402
import nbval.plugin  # noqa: E402
import pytest  # noqa: E402
from jupyter_client.manager import KernelManager  # noqa: E402

MAX_OUTPUT = 4 << 20  # characters of one run, in all that the kernel sends
MAX_TEXT = 2000  # characters of what is told of one cell
MAX_FRAMES = 100  # parts of a traceback in which the line is looked for
POLL = 0.25  # seconds between two looks at whether the kernel lives
DRAIN = 2  # seconds that a cell's last messages may take after an interrupt
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WITHOUT_TERMINAL = "get_ipython().system = get_ipython().system_raw"


class KernelDied(Exception):
    """The process that ran the cells ended."""


class Flood(Exception):
    """The cells printed more than anyone reads."""


class Specs(nbval.kernel.NbvalKernelspecManager):
    """Kernel specifications whose command enters the jail first.

    A line `!command` runs without a terminal: IPython would make one, but where learner code could open its own it
    could open those of whoever grades.
    """

    def __init__(self, enter: list, **options):
        super().__init__(**options)
        self.words = enter

    def get_kernel_spec(self, kernel_name):
        spec = super().get_kernel_spec(kernel_name)
        spec.argv = [*self.words, *spec.argv, f"--IPKernelApp.exec_lines={WITHOUT_TERMINAL}"]
        return spec


class Kernel(nbval.kernel.RunningKernel):
    """nbval's kernel, with a memory of the last reply and an eye on the process."""

    reply: dict = {}
    output = 0
    last = float("inf")  # when the messages of a cell that ran out of time have to be over
    enter: list = []  # words before the kernel's own command

    def __init__(self, kernel_name, cwd=None, startup_timeout=60):
        sockets = {"transport": "ipc", "ip": "home/k"} if os.name == "posix" else {}  # relative: a path may be long
        self.km = KernelManager(kernel_name=kernel_name, kernel_spec_manager=Specs(enter=self.enter), **sockets)
        self.km.start_kernel(stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd)
        self.kc = self.km.client()
        self.kc.start_channels()
        try:
            self.kc.wait_for_ready(timeout=startup_timeout)
        except RuntimeError:
            self.kc.stop_channels()
            self.km.shutdown_kernel(now=True)
            raise
        self._ensure_iopub_up()

    def await_reply(self, msg_id, timeout=None):
        self.reply, self.last = {}, float("inf")
        end = time.monotonic() + (timeout or 1e9)
        try:
            while True:
                message = self.get_message("shell", end - time.monotonic())
                if message["parent_header"].get("msg_id") == msg_id:
                    self.reply = message["content"] if isinstance(message["content"], dict) else {}
                    return
        except queue.Empty:
            self.last = time.monotonic() + DRAIN
            raise

    def get_message(self, stream, timeout=None):
        end = min(time.monotonic() + (timeout or 1e9), self.last)
        take = self.kc.get_iopub_msg if stream == "iopub" else self.kc.get_shell_msg
        while time.monotonic() < end:  # here, not where there is no message: they may come without end
            try:
                message = take(timeout=POLL)
            except queue.Empty:
                if not self.is_alive():
                    raise KernelDied() from None
                continue
            self.output += len(str(message["content"]))
            if self.output > MAX_OUTPUT:
                raise Flood()
            return message
        raise queue.Empty()


class Grading:
    """The hooks. log: path of the log; ended: why nothing more can run."""

    def __init__(self, log: Path):
        self.log, self.ended = log, ""

    def write(self, **record):
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if isinstance(item, nbval.plugin.IPyNbCell):
            item.parent.timed_out = False  # nbval would let the cells after a time-out count as expected failures
            item.options.clear()  # no marker of a cell has a say
            item.options.update(check=False, skip=False, check_exception=False)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        if not isinstance(item, nbval.plugin.IPyNbCell):
            return (yield)
        who = dict(item.cell.metadata.get("bytes_first", {"role": "", "task": ""}))
        if self.ended:
            self.write(event="end", **who, status="not_run", text=self.ended)
            pytest.fail(self.ended, pytrace=False)
        self.write(event="start", **who)
        item.output_timeout = DRAIN
        begun, kernel = time.monotonic(), item.parent.kernel
        status, told = "ok", ""
        try:
            yield
            if item.parent.timed_out:
                status, told = "timeout", f"it took longer than {item.config.option.nbval_cell_timeout:g} s"
            elif kernel.reply.get("status") == "error":
                status, told = "error", said(kernel.reply)
        except KernelDied:
            status, told = "died", "the process that ran the cell ended"
            self.ended = "an earlier cell ended the process"
        except Flood:
            status, told = "flood", f"the cells printed more than {MAX_OUTPUT >> 20} MiB"
            self.ended = "an earlier cell flooded the output"
            kernel.stop()
        except BaseException as error:
            reply = kernel.reply
            if item.parent.timed_out or not hasattr(kernel, "km"):
                status, told = "timeout", f"it took longer than {item.config.option.nbval_cell_timeout:g} s"
                if not hasattr(kernel, "km"):
                    self.ended = "an earlier cell could not be interrupted"
            elif reply.get("status") == "error":
                status, told = "error", said(reply)
            elif isinstance(error, RuntimeError):
                status, told = "died", "the process that ran the cell ended"
                self.ended = "an earlier cell ended the process"
            else:
                status, told = "error", plain(str(error))
        self.write(
            event="end",
            **who,
            status=status,
            text=told,
            line=line_of(kernel.reply),
            seconds=round(time.monotonic() - begun, 3),
        )
        if status != "ok":
            pytest.fail(told, pytrace=False)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        self.write(event="finished", exitstatus=int(exitstatus))


def plain(text: str) -> str:
    """Text without terminal colours, and no more than is told."""
    return COLOUR.sub("", text[: 2 * MAX_TEXT])[:MAX_TEXT]


def said(reply: dict) -> str:
    """The exception of a failed reply, as type and text."""
    return plain(f"{reply.get('ename')}: {reply.get('evalue')}").rstrip(": ")


def line_of(reply: dict) -> int:
    """The last line of the cell itself that a traceback names; 0 for none."""
    frames = reply.get("traceback")
    frames = frames[-MAX_FRAMES:] if isinstance(frames, list) else []
    found = re.findall(r"Cell In\[\d*\], line (\d{1,6})", "\n".join(plain(str(frame)) for frame in frames))
    return int(found[-1]) if found else 0


def main(argv: list | None = None) -> int:
    parser = argparse.ArgumentParser(prog="plugin.py")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--cell-seconds", type=float, required=True)
    parser.add_argument("--enter", type=json.loads, default=[], metavar="JSON")
    options = parser.parse_args(argv)
    Kernel.enter = options.enter
    nbval.plugin.RunningKernel = Kernel
    nbval.plugin.coalesce_streams = lambda outputs: outputs  # quadratic, and nobody compares them
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    folder = options.notebook.parent
    return int(
        pytest.main(
            [
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:terminalreporter",
                "-c",
                os.devnull,
                "--rootdir",
                str(folder),
                "-p",
                "nbval.plugin",
                "--nbval-lax",
                "--nbval-current-env",
                "--nbval-cell-timeout",
                str(options.cell_seconds),
                str(options.notebook),
            ],
            plugins=[Grading(options.log)],
        )
    )


if __name__ == "__main__":
    sys.exit(main())
