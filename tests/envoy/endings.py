"""An upstream whose answers end in every possible way, chosen by the path, and clients that leave early."""

import concurrent.futures
import socket
import threading
import time

import grpc

from harness import eventually


class Behaving:
    """Answers with its `status` after its `seconds`; `/reset`, `/broken`, `/hang` and `/redirect` end otherwise."""

    def __init__(self):
        self.status, self.seconds, self.requests = 200, 0, 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listening.getsockname()[1]
        self._closing = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._closing.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self):
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            with connection, connection.makefile("rb") as lines:
                while request := lines.readline():
                    path = request.split()[1].decode()
                    while lines.readline() not in (b"\r\n", b""):
                        pass
                    self.requests += 1
                    if not self._answer(connection, path):
                        return
        except (OSError, IndexError):
            pass  # the client has left

    def _answer(self, connection, path):
        """Whether the connection stays open."""
        time.sleep(self.seconds)
        if "/reset" in path:
            return False
        if "/broken" in path:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
            time.sleep(0.02)
            connection.shutdown(socket.SHUT_RDWR)
            return False
        if "/hang" in path:
            self._closing.wait(30)
            return False
        if "/tunnel" in path:
            connection.sendall(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
            connection.recv(100)  # until the client has sent something, or left
            connection.shutdown(socket.SHUT_RDWR)
            return False
        if "/redirect" in path:
            connection.sendall(b"HTTP/1.1 302 Found\r\nlocation: http://shop/login\r\ncontent-length: 0\r\n\r\n")
            return True
        if "/flaky" in path and self.requests % 2:
            return False
        connection.sendall(f"HTTP/1.1 {self.status} Status\r\ncontent-length: 0\r\n\r\n".encode())
        return True


class Service(grpc.GenericRpcHandler):
    """gRPC methods: `Ok`, `Fail` (an answer of headers alone), `FailLate` (with the status in its trailers)."""

    def __init__(self):
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self):
        self._server.stop(None).wait()

    def service(self, details):
        def answer(request, context):
            if not details.method.endswith("/Fail"):
                yield request
            if not details.method.endswith("/Ok"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "no")

        return grpc.unary_stream_rpc_method_handler(answer)


class Client:
    """A new connection that sends one request and may leave before the answer."""

    def __init__(self, port, path, headers=""):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: shop\r\n{headers}\r\n".encode())

    def leave(self):
        self.socket.close()


UPGRADE = "connection: upgrade\r\nupgrade: websocket\r\n"


def metric(running, name):
    """A counter or a gauge of the filter, whichever resource its rule is for; `None` if it does not exist."""
    stats, name = running.stats(), f"wasmcustom.leapgate.{name}"
    return stats.get(name, next((value for known, value in stats.items() if known.startswith(f"{name};resource=")), None))


def none_in_flight(running, *gauges):
    """Waits until these gauges say that no call is in flight."""
    for gauge in gauges:
        eventually(f"{gauge} is 0", lambda: not metric(running, gauge))
