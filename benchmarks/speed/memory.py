"""Anonymous memory, as the operating system counts it: what a process holds that is not backed by a file."""

from __future__ import annotations

import threading

import psutil


def anonymous_mib() -> float:
    """MiB of this process now; pages of memory-mapped files (``shared``) are not its own."""
    used = psutil.Process().memory_info()
    return (used.rss - used.shared) / 2**20


class PeakMemory:
    """The highest anonymous memory while it runs, looked at a hundred times a second from another thread."""

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = anonymous_mib()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.peak = max(self.peak, anonymous_mib())

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.peak = max(self.peak, anonymous_mib())

    @property
    def above(self) -> float:
        """MiB of the peak above the beginning."""
        return self.peak - self.before
