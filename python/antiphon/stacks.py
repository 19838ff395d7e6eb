"""The stacks of this process's threads, for a run that stands still. Reads no file: what hangs may be a file system."""

from __future__ import annotations

import os
import sys
import threading
import traceback


def stacks(task: int) -> str:
    """What each Python thread is doing, the main thread first, each line with the task in front."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    lines = [f"stands still (process {os.getpid()}), most recent call last:"]
    for ident, frame in sorted(sys._current_frames().items(), key=lambda of: (of[0] != main, of[0])):
        if ident == threading.get_ident():
            continue
        lines.append(f"thread {names.get(ident, ident)}:")
        for called, line in reversed(list(traceback.walk_stack(frame))):
            code = called.f_code
            lines.append(f"  {code.co_filename}:{line} {code.co_name}")
    return "".join(f"antiphon: task {task}: {line}\n" for line in lines)


def write(task: int) -> None:
    """Writes them where the process's errors go, at once, so that those of several tasks do not mix."""
    text = stacks(task).encode(errors="replace")
    # Not through `sys.stderr`: a thread that hangs may hold its lock.
    while text:
        text = text[os.write(2, text) :]
