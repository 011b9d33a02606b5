"""Writes a file so that an interrupt leaves the old one or the new one, never a part of it."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` at `path`: written and synced beside it under another name, then renamed. The folder must exist."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
