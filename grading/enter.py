"""Enters what isolation the host allows, then becomes a command: `python -I -S enter.py SPEC COMMAND...`.

SPEC is JSON. {"namespaces": true}: user, network, process and IPC namespaces of its own; the command is process 1 in
there, so when it ends, or is killed, all that it started ends with it. {"read": [...], "write": [...], "names": [...],
"limits": {...}, "open": [...]}: resource limits; Landlock, under which only these paths can be read or written, no TCP
port reached, and no process outside signalled or traced; and, where "open" is given, further namespaces, with every
mount read-only but those folders. What the host refuses is left out; grading/jail.py probes what that is and says so.

`narrow` is for a process in there that forks: what each child may write.

Linux only, standard library only, and it imports nothing of the course: it runs before the command, as whoever grades,
and a copy of this one file is all that a process in the jail has of it.
"""

import ctypes
import json
import os
import signal
import stat
import struct
import sys

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
PRIVATE_BELOW = 1 << 18 | 1 << 14  # of a mount: what changes here stays here, for all that lies under it too
BIND_BELOW = 1 << 12 | 1 << 14
READ_ONLY, NO_SETUID, NO_DEVICES = 1, 2, 4  # attributes of a mount
HERE, ALL_BELOW = -100, 0x8000  # AT_FDCWD, AT_RECURSIVE
MOUNT_SETATTR = 442  # system calls, the same numbers on every architecture
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVILEGES, PARENT_DEATH_SIGNAL = 38, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL  # rights that a rule on a plain file may name
DEVICES = 1 << 6 | 1 << 10 | 1 << 11  # making devices and pipes: no one's need, and a pipe stops whoever reads it
CHANGES = 0b0111_1111_1111_0010 & ~DEVICES  # writing, truncating, making, moving and removing
INSIDE = 1000  # user id inside, where root grades: without root's capabilities, and still the owner of its files

libc = ctypes.CDLL(None, use_errno=True)


def checked(code: int) -> int:
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return code


def new_user(others: int, user: int, group: int) -> None:
    """Enter a new user namespace, as this user and group of it, and others that belong to it."""
    lines = ("setgroups", "deny"), ("uid_map", f"{user} {os.getuid()} 1"), ("gid_map", f"{group} {os.getgid()} 1")
    checked(libc.unshare(NEWUSER | others))
    for file, text in lines:
        put(f"/proc/self/{file}", text)


def put(path: str, text: str) -> None:
    with open(path, "w") as out:
        out.write(text)


def as_first() -> None:
    """Go on as process 1 of the new process namespace; the process that was here waits for it, and ends as it does."""
    child = os.fork()
    if child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.exit(code if code >= 0 else 128 - code)
    libc.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def no_hidden_memory() -> None:
    """No System V shared memory and queues: they hold memory that belongs to no process and no file.

    Only user 0 of the namespace may say so; what comes after has no rights in it.
    """
    new_user(NEWIPC, 0, 0)
    for name in ("shmmni", "msgmni"):
        put(f"/proc/sys/kernel/{name}", "0")


def own_proc() -> None:
    """/proc of the new process namespace: CUDA names its threads there, by the numbers that they have inside."""
    checked(libc.unshare(NEWNS))
    checked(libc.mount(b"none", b"/", None, PRIVATE_BELOW, None))
    checked(libc.mount(b"proc", b"/proc", b"proc", 0, None))


def read_only(places: list) -> None:
    """Every mount read-only but these folders: no mode, owner, time or name changes outside, whoever owns the file.

    Of /proc, where it is one of them, only what belongs to processes can be written, and in here those are the run's.
    """
    own_proc()
    real = [os.path.realpath(place).encode() for place in places]
    for place in real:
        checked(libc.mount(place, place, None, BIND_BELOW, None))
    mark(b"/", READ_ONLY, 0)
    for place in real:
        mark(place, NO_SETUID | NO_DEVICES, READ_ONLY)
    if "/proc" in places:
        for entry in [e for e in os.scandir("/proc") if not e.name.isdigit() and not e.is_symlink()]:
            checked(libc.mount(entry.path.encode(), entry.path.encode(), None, BIND_BELOW, None))
            mark(entry.path.encode(), READ_ONLY, 0)


def mark(place: bytes, on: int, off: int) -> None:
    """Attributes of the mount at `place` and of all below it."""
    attribute = struct.pack("=4Q", on, off, 0, 0)
    checked(libc.syscall(MOUNT_SETATTR, HERE, place, ALL_BELOW, attribute, ctypes.c_size_t(len(attribute))))


def own_streams() -> None:
    """What was opened outside belongs to a mount that can be written: modes could be changed through it. Pipes stay."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        if not stat.S_ISFIFO(os.fstat(stream).st_mode):
            os.dup2(null, stream)


def landlock_version() -> int:
    """Landlock's ABI on this host; 0 without it."""
    return max(0, libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def landlock(read: list, write: list, names: list) -> None:
    """From here on, only these paths; of what lies in `names`, only the names."""
    version = landlock_version()
    if not version:
        raise OSError("no Landlock")
    every = known(version)
    fields = [every] + [0b11] * (version >= 4) + [0b11] * (version >= 6)  # files; TCP; sockets and signals to outside
    restrict(fields, ((read, EXECUTE | READ_FILE | READ_DIR), (write, every & ~DEVICES), (names, READ_DIR)))


def narrow(folder: str) -> None:
    """From here on this process and its children write only below `folder`, and to devices, if they could before.

    They read as before, and use what they have open; the processes outside they can no longer signal (Linux 6.12). For
    each child that one process forks, before it starts threads: the thread that calls this, and no other, is held.
    Without Landlock it does nothing.
    """
    version = landlock_version() if sys.platform.startswith("linux") else 0
    if version:
        fields = [known(version) & (CHANGES | DEVICES)] + [0] * (version >= 6) + [0b10] * (version >= 6)
        restrict(fields, (([folder], CHANGES), (["/dev", "/proc"], WRITE_FILE | TRUNCATE)))


def known(version: int) -> int:
    """The rights to files that Landlock knows at this version."""
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1


def restrict(fields: list, rules: tuple) -> None:
    """A ruleset that handles `fields` (files, TCP, scopes), with rules (paths, rights to them), on this process."""
    attribute = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = checked(libc.syscall(CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), 0))
    for paths, rights in rules:
        for path in paths:
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = rights & fields[0] & (-1 if os.path.isdir(path) else ON_FILES)
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


def main(spec: dict, command: list) -> None:
    user, group = os.getuid() or INSIDE, os.getgid() or INSIDE
    if spec.get("namespaces"):
        attempt(no_hidden_memory)
        attempt(new_user, NEWNET | NEWPID, user, group)
        as_first()
        attempt(own_proc)
    if "open" in spec:  # namespaces below those of the run: nbval is out of sight in there, and its mounts out of reach
        attempt(new_user, NEWPID, user, group)
        attempt(put, "/proc/sys/user/max_user_namespaces", "0")  # in its own, learner code would have every right
        as_first()
        attempt(read_only, spec["open"])
    attempt(limit, spec.get("limits", {}))
    if "read" in spec:
        attempt(own_streams)
        attempt(landlock, spec["read"], spec["write"], spec.get("names", []))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
