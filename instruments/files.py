"""Files written whole or not at all, and text written between markers."""

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


def between(text: str, begin: str, end: str, content: str) -> str:
    """`text` with `content` in the place of what stands between two markers, each of which it holds once."""
    before, rest = text.split(begin)
    return before + begin + content + end + rest.split(end)[1]
