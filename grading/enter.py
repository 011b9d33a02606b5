"""Enters what isolation the host allows, then becomes a command: `python -I -S enter.py SPEC COMMAND...`.

SPEC is JSON. {"namespaces": true}: user, network, process and IPC namespaces of its own; the command is process 1 in
there, so when it ends, or is killed, all that it started ends with it. {"read": [...], "write": [...], "names": [...], "limits": {...}}:
resource limits, and Landlock, under which only these paths can be read or written, no TCP port reached, and no process
outside signalled or traced. What the host refuses is left out; grading/jail.py probes what that is and says so.

Linux only, standard library only, and it imports nothing of the course: it runs before the command, as whoever grades.
"""

import ctypes
import json
import os
import signal
import struct
import sys

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
PRIVATE_BELOW = 1 << 18 | 1 << 14  # of a mount: what changes here stays here, for all that lies under it too
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same numbers on every architecture
NO_NEW_PRIVILEGES, PARENT_DEATH_SIGNAL = 38, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL  # rights that a rule on a plain file may name
DEVICES = 1 << 6 | 1 << 10 | 1 << 11  # making devices and pipes: no one's need, and a pipe stops whoever reads it
INSIDE = 1000  # user id inside, where root grades: without root's capabilities, and still the owner of its files

libc = ctypes.CDLL(None, use_errno=True)


def checked(code: int) -> int:
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return code


def namespaces() -> None:
    """Enter new namespaces; the next child is process 1 of them."""
    user, group = os.getuid(), os.getgid()
    checked(libc.unshare(NEWUSER | NEWNET | NEWPID | NEWIPC))
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user or INSIDE} {user} 1"),
                       ("gid_map", f"{group or INSIDE} {group} 1")):
        with open(f"/proc/self/{file}", "w") as out:
            out.write(text)


def own_proc() -> None:
    """/proc of the new process namespace: CUDA names its threads there, by the numbers that they have inside."""
    checked(libc.unshare(NEWNS))
    checked(libc.mount(b"none", b"/", None, PRIVATE_BELOW, None))
    checked(libc.mount(b"proc", b"/proc", b"proc", 0, None))


def landlock_version() -> int:
    """Landlock's ABI on this host; 0 without it."""
    return max(0, libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def landlock(read: list, write: list, names: list) -> None:
    """From here on, only these paths; of what lies in `names`, only the names."""
    version = landlock_version()
    if not version:
        raise OSError("no Landlock")
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    fields = [every] + [0b11] * (version >= 4) + [0b11] * (version >= 6)  # files; TCP; sockets and signals to outside
    attribute = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = checked(libc.syscall(CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), 0))
    for paths, rights in ((read, EXECUTE | READ_FILE | READ_DIR), (write, every & ~DEVICES), (names, READ_DIR)):
        for path in paths:
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = rights & every if os.path.isdir(path) else rights & every & ON_FILES
            checked(libc.syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, opened), 0))
            os.close(opened)
    checked(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    checked(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def limit(limits: dict) -> None:
    """Resource limits by their name in the `resource` module; one above what the host allows stays at that."""
    import resource

    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def attempt(step, *arguments) -> None:
    try:
        step(*arguments)
    except (OSError, ValueError):
        pass


def main(spec: dict, command: list) -> int:
    if spec.get("namespaces"):
        attempt(namespaces)
        child = os.fork()
        if child:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return code if code >= 0 else 128 - code
        libc.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        attempt(own_proc)
    attempt(limit, spec.get("limits", {}))
    if "read" in spec:
        attempt(landlock, spec["read"], spec["write"], spec.get("names", []))
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
