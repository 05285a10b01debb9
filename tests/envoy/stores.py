"""Real stores for leased permits: Redis, webdis in front of it, envoyproxy/ratelimit, and a stand-in for Upstash's REST interface.

Everything listens on 127.0.0.1, on free ports, and keeps nothing on disk.
"""

import ctypes
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from harness import ROOT, eventually, free_port


_LIBC = ctypes.CDLL(None)


class Server:
    """A program that is started, stopped for a while, killed and started anew, always on the same port."""

    def __init__(self, program):
        self.program = ROOT / ".tools" / program
        if not self.program.exists():
            raise AssertionError(f"{self.program} is missing: ./build.sh test envoy makes it")
        self.port = free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-store-"))
        self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _arguments(self):
        raise NotImplementedError

    def _environment(self):
        """All that it has in its environment; `None`: what the test has."""
        return None

    def start(self):
        """Starts it, empty; it answers when this returns."""
        with open(self.folder / "log", "a") as log:
            self._process = subprocess.Popen(
                [self.program, *self._arguments()], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                # A test run that is killed leaves no server behind (PR_SET_PDEATHSIG).
                preexec_fn=lambda: _LIBC.prctl(1, signal.SIGKILL))
        eventually(f"{self.program.name} listens", self._listens)

    def _listens(self):
        if self._process.poll() is not None:
            raise AssertionError(f"{self.program.name} ended with {self._process.returncode}:\n{self.log()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def suspend(self):
        """It stands still, with its connections open."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self):
        """It is gone at once, with all that it knew."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def restart(self):
        """It is killed, and started empty."""
        self.kill()
        self.start()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Server):
    """A Redis with databases in memory alone."""

    def __init__(self, password=None):
        super().__init__("redis/redis-server")
        self.password = password
        self.start()

    def _arguments(self):
        arguments = ["--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.folder]
        if self.password:
            arguments += ["--requirepass", self.password]
        return [str(argument) for argument in arguments]

    def command(self, *parts):
        """The answer to one command, on a connection of its own; an error is raised."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            with connection.makefile("rwb") as stream:
                if self.password:
                    _ask(stream, ["AUTH", self.password])
                return _ask(stream, parts)

    def info(self):
        """What INFO says, of commands too."""
        lines = self.command("INFO", "everything").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls(self):
        """How often scripts were run, for permits."""
        info = self.info()
        stats = [info.get(f"cmdstat_{name}", "calls=0") for name in ("evalsha", "eval")]
        return sum(int(stat.split("calls=")[1].split(",")[0]) for stat in stats)

    def wait_for_age(self, seconds):
        """Waits until it is that old: a younger one takes a missing key for full, since it may have forgotten it."""
        eventually(f"Redis is {seconds} s old", lambda: int(self.info()["uptime_in_seconds"]) >= seconds, seconds + 10)


def _ask(stream, parts):
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    stream.flush()
    return _read(stream)


def _read(stream):
    line = stream.readline()[:-2]
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"*":
        return [_read(stream) for _ in range(int(rest))]
    if rest == b"-1":
        return None
    found = stream.read(int(rest) + 2)
    return found[:-2]


class Ratelimit(Server):
    """An envoyproxy/ratelimit with these rules in its domain `leapgate`, as its YAML has them."""

    def __init__(self, redis, descriptors):
        super().__init__("ratelimit/service_cmd")
        self.redis = redis
        configuration = self.folder / "rules" / "config" / "leapgate.yaml"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(json.dumps({"domain": "leapgate", "descriptors": descriptors}))  # JSON is YAML
        self.start()

    def _arguments(self):
        return []

    def _environment(self):
        local = {name: "127.0.0.1" for name in ("HOST", "GRPC_HOST", "DEBUG_HOST")}
        ports = {"GRPC_PORT": self.port, "PORT": free_port(), "DEBUG_PORT": free_port()}
        rules = {"RUNTIME_ROOT": self.folder, "RUNTIME_SUBDIRECTORY": "rules", "RUNTIME_WATCH_ROOT": "false"}
        redis = {"BACKEND_TYPE": "redis", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": f"127.0.0.1:{self.redis.port}"}
        of = {**local, **ports, **rules, **redis, "USE_STATSD": "false", "DISABLE_STATS": "true", "LOG_LEVEL": "warn"}
        return {name: str(value) for name, value in of.items()}

    def counts(self):
        """What it has counted, by its keys: the domain, the descriptor and when the window began."""
        keys = [key.decode() for key in self.redis.command("KEYS", "leapgate_*")]
        return {key: int(self.redis.command("GET", key)) for key in keys}


class Webdis(Server):
    """A webdis in front of a Redis, with no other commands than EVAL and EVALSHA, as `docs/envoy.md` shows it.

    With `token` (`user:password`) it allows them to those who have it, only. `password` is what it uses at Redis.
    """

    def __init__(self, redis, token=None, password=None):
        super().__init__("webdis/webdis")
        scripts = {"enabled": ["EVAL", "EVALSHA"]}
        if token:
            scripts["http_basic_auth"] = token
        configuration = {
            "redis_host": "127.0.0.1", "redis_port": redis.port, "redis_auth": password or redis.password,
            "http_host": "127.0.0.1", "http_port": self.port, "threads": 2, "pool_size": 4, "daemonize": False, "websockets": False,
            "database": 0, "acl": [{"disabled": ["*"]}, scripts], "verbosity": 2, "logfile": str(self.folder / "webdis.log"),
        }
        (self.folder / "webdis.json").write_text(json.dumps(configuration))
        self.start()

    def _arguments(self):
        return [str(self.folder / "webdis.json")]


class Upstash:
    """Upstash's REST interface in front of a Redis: `POST /` with a command as a JSON array, and a bearer's token."""

    def __init__(self, redis, token):
        self.asked = []
        self.answer = None  # a status and a body that it gives to all, instead
        upstash = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                command = json.loads(self.rfile.read(int(self.headers["content-length"])))
                upstash.asked.append(command)
                status, body = upstash.answer or self._run(command)
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def _run(self, command):
                if self.headers["authorization"] != f"Bearer {token}":
                    return 401, {"error": "Unauthorized"}
                try:
                    found = redis.command(*command)
                except RuntimeError as error:
                    return 400, {"error": str(error)}
                return 200, {"result": found.decode()}

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
