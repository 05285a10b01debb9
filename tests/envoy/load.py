"""Load on an Envoy, and the judge of the requests that it admitted.

Every request is an interval, from just before it was sent to just after it was answered: the decision was made
somewhere in it. A window limit is certainly broken when some interval of the window's length wholly contains
more admitted requests than the limit; points in time instead of intervals would give false alarms.
"""

import bisect
import collections
import itertools
import re
import selectors
import socket
import threading
import time
from typing import NamedTuple

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class Sample(NamedTuple):
    """One answered request; times in seconds of the monotonic clock."""

    sent: float
    answered: float
    status: int


def most_in_any_window(samples, window):
    """The largest number of samples that one closed interval of the window's length wholly contains."""
    # A sample that is longer than the window is in no interval. Another sample that was sent before the interval
    # begins and ended after the interval's end would be longer than the window; so the number of contained samples is the
    # number that ended by its end, less the number that were sent before its beginning.
    kept = [sample for sample in samples if sample.answered - sample.sent <= window]
    sent = sorted(sample.sent for sample in kept)
    answered = sorted(sample.answered for sample in kept)
    # The best interval begins where a sample does.
    return max((bisect.bisect_right(answered, begin + window) - i for i, begin in enumerate(sent)), default=0)


class Source:
    """Requests to one path over some keep-alive connections: as fast as they are answered, or at a number per second.

    `headers` are the same for all requests, or an iterator of the headers of each: lines, one after another.
    """

    def __init__(self, path, connections=16, rate=None, headers=""):
        self.head = f"GET {path} HTTP/1.1\r\nhost: shop\r\n"
        self.headers = itertools.repeat(headers) if isinstance(headers, str) else headers
        self.connections = connections
        self.gap = 1 / rate if rate else 0
        self.samples = []
        self.lost = 0
        self.due = 0
        self.idle = collections.deque()

    def request(self):
        return f"{self.head}{next(self.headers)}\r\n".encode()

    def admitted(self):
        return [sample for sample in self.samples if sample.status == 200]


class _Connection:
    def __init__(self, source):
        self.source = source
        self.socket = None
        self.sent = 0.0
        self.answer = b""


class Load:
    """Drives several sources from one thread; `with Load(port, source, …):` runs it as long as the block."""

    def __init__(self, port, *sources):
        self._address = ("127.0.0.1", port)
        self.sources = sources
        self._selector = selectors.EpollSelector()
        self._stopping = False
        self._failure = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        for source in self.sources:
            source.idle.extend(_Connection(source) for _ in range(source.connections))
            for connection in source.idle:
                self._open(connection)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping = True
        self._thread.join()
        if self._failure:
            raise self._failure

    def _open(self, connection):
        connection.socket = socket.create_connection(self._address, timeout=10)
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def _close(self, connection):
        if connection.socket is None:
            return  # it was never open: no server listens
        self._selector.unregister(connection.socket)
        connection.socket.close()
        connection.socket = None

    def _run(self):
        try:
            begin = time.monotonic()
            for source in self.sources:
                source.due = begin
            while not self._stopping:
                for source in self.sources:
                    self._send_due(source)
                for key, _ in self._selector.select(0.001):
                    self._receive(key.data)
            # Requests under way count as well.
            end = time.monotonic() + 5
            while any(len(source.idle) < source.connections for source in self.sources) and time.monotonic() < end:
                for key, _ in self._selector.select(0.1):
                    self._receive(key.data)
        except Exception as failure:  # handed to the test's own thread
            self._failure = failure
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()
            self._selector.close()

    def _send_due(self, source):
        while source.idle and (not source.gap or source.due <= time.monotonic()):
            connection = source.idle.popleft()
            connection.answer = b""
            connection.sent = time.monotonic()
            source.due += source.gap
            try:
                if connection.socket is None:
                    self._open(connection)
                connection.socket.send(source.request())
            except OSError:
                self._lose(connection)

    def _receive(self, connection):
        try:
            data = connection.socket.recv(65536)
        except OSError:
            data = b""
        answered = time.monotonic()
        if not data:
            # Closed: between two requests Envoy may do that; of a request under way the outcome is unknown.
            if connection in connection.source.idle:
                self._close(connection)
            else:
                self._lose(connection)
            return
        connection.answer += data
        head, separator, body = connection.answer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = _LENGTH.search(connection.answer)
        if len(body) < (int(length[1]) if length else 0):
            return
        source = connection.source
        source.samples.append(Sample(connection.sent, answered, int(head[9:12])))
        if b"\r\nconnection: close" in head:
            self._close(connection)
        source.idle.append(connection)

    def _lose(self, connection):
        connection.source.lost += 1
        self._close(connection)
        connection.source.idle.append(connection)
