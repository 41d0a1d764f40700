"""Simulated time."""

import heapq


class EventLoop:
    """Calls functions at the times for which they are scheduled.

    Of functions for the same time, the one that was scheduled first is called first.
    """

    def __init__(self):
        self.now = 0.0  # seconds
        self._events = []
        self._scheduled = 0

    def at(self, time, function, *arguments):
        """Has a function called.

        Args:
            time: float, not before `now`.
            function: The function.
            *arguments: Its arguments.
        """
        heapq.heappush(self._events, (time, self._scheduled, function, arguments))
        self._scheduled += 1

    def run(self, done):
        """Calls functions until nothing is scheduled, or `done()` is true after one.

        Args:
            done: Function without arguments.
        """
        while self._events and not done():
            self.now, _, function, arguments = heapq.heappop(self._events)
            function(*arguments)
