"""``debug.jsonl``: one line for each attempt, written in one append. Off unless ``ask.log`` names a file.

A line holds names, numbers and words of fixed vocabularies: no prompt, no answer, no key, no engine's words. Only its
owner may read the file.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

logger = logging.getLogger("embedkit.ask")

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class DebugLog:
    """Appends lines to a file. One that cannot be written is reported once, and the question goes on.

    Args:
        path: The file; its folder is made.
        now: The wall clock, in seconds since 1970.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._is_broken = False

    def write(self, entry: Mapping[str, object]) -> None:
        """Append one line. Several processes may: each line is one write."""
        if self._is_broken:
            return
        line = json.dumps({"at": round(self._now(), 3), **entry}, ensure_ascii=True) + "\n"
        try:
            self._path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
            try:
                os.write(file, line.encode("ascii"))
            finally:
                os.close(file)
        except OSError as error:
            self._is_broken = True
            logger.warning("ask.log: %s cannot be written (%s); no attempt is logged", self._path, error.strerror)
