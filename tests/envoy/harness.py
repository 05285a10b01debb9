"""A real Envoy with the filter in it, and operations on it: configure, update, request, stop.

Configurations are JSON, which is YAML to Envoy. Everything listens on 127.0.0.1, on free ports.
"""

import ctypes
import http.client
import http.server
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ENVOY = pathlib.Path(os.environ.get("ENVOY", ROOT / ".tools" / "envoy"))
OLDEST_ENVOY = ROOT / ".tools" / "oldest-envoy"
WASM = pathlib.Path(os.environ.get("LEAPGATE_WASM", ROOT / "dist" / "leapgate.wasm"))

_LIBC = ctypes.CDLL(None)


# Below the ports that the kernel gives to outgoing connections: a client of these tests cannot take such a port meanwhile.
_PORTS = range(20_000, 30_000)
_next_port = itertools.count(random.randrange(len(_PORTS)))


def free_port():
    """A port without a listener that has not been given out before."""
    while True:
        port = _PORTS[next(_next_port) % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def eventually(claim, check, seconds=10):
    """Polls until `check()` is true and returns its answer; fails with the claim if it never is."""
    end = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {claim}")
        time.sleep(0.01)


# ---- configuration --------------------------------------------------------------------------------


def string_value(text):
    return {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": text}


def plugin(rules, root_id="leapgate", vm_id="leapgate", vm_configuration=None, fields=None, vm_fields=None):
    """The filter; `rules` is a document, or any text that is not one; `fields` are further fields of its `config`."""
    vm = {"vm_id": vm_id, "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": str(WASM)}}, **(vm_fields or {})}
    if vm_configuration is not None:
        vm["configuration"] = string_value(vm_configuration)
    return {
        "name": "envoy.filters.http.wasm",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "leapgate",
                "root_id": root_id,
                "failure_policy": "FAIL_RELOAD",
                "configuration": string_value(rules if isinstance(rules, str) else json.dumps(rules)),
                "vm_config": vm,
                **(fields or {}),
            },
        },
    }


def route(name, cluster=None, prefix=None):
    """A route for /name that answers directly, or forwards to a cluster."""
    action = {"route": {"cluster": cluster}} if cluster else {"direct_response": {"status": 200}}
    return {"name": name, "match": {"prefix": prefix or f"/{name}"}, **action}


def virtual_host(*routes, name="shop", domains=("*",)):
    return {"name": name, "domains": list(domains), "routes": list(routes)}


ROUTER = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
}


def listener(port, hosts, filters, access_log=None, trusted_hops=0, manager_fields=None):
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "use_remote_address": True,
        "xff_num_trusted_hops": trusted_hops,
        "route_config": {"name": "edge", "virtual_hosts": hosts},
        "http_filters": [*filters, ROUTER],
        **(manager_fields or {}),
    }
    if access_log:
        manager["access_log"] = [{
            "name": "envoy.access_loggers.file",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": str(access_log),
                "log_format": {"text_format_source": {
                    "inline_string": "%REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS%\n"}},
            },
        }]
    return {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": f"edge-{port}",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    }


def cluster(name, port, http2=False):
    found = {
        "name": name,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}]}]},
    }
    if http2:
        found["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }}
    return found


# ---- the upstream behind Envoy --------------------------------------------------------------------


class Upstream:
    """A server that answers after some milliseconds and records the most requests at one time, and when each arrived."""

    def __init__(self, seconds=0.02):
        self.most = 0
        self.arrivals = []
        self.bodies = []
        self._inside = 0
        lock = threading.Lock()
        upstream = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                upstream.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.do_GET()

            def do_GET(self):
                with lock:
                    upstream.arrivals.append(time.monotonic())
                    upstream._inside += 1
                    upstream.most = max(upstream.most, upstream._inside)
                time.sleep(seconds)
                with lock:
                    upstream._inside -= 1
                try:
                    self.send_response(200)
                    self.send_header("content-length", "0")
                    self.end_headers()
                except OSError:
                    self.close_connection = True  # the client has left

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                # Envoy cuts connections off when their listener is replaced.
                if not isinstance(sys.exc_info()[1], ConnectionResetError):
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


# ---- one Envoy ------------------------------------------------------------------------------------


class Envoy:
    """One Envoy that reads its listeners (by default one) from a file that `configure` replaces.

    If the rules are `None`, it has no filter. `before` and `after` are other filters in its chain.
    """

    def __init__(self, rules, routes=(), hosts=None, workers=2, clusters=(), stats_config=None, access_log=False, listeners=1,
                 trusted_hops=0, manager_fields=None, plugins=1, plugin_how=None, binary=ENVOY, before=(), after=(), drain_seconds=1):
        for path, command in ((binary, "./build.sh test envoy"), (WASM, "./build.sh wasm")):
            if not path.exists():
                raise AssertionError(f"{path} is missing: {command} makes it")
        self.ports, self.admin_port = [free_port() for _ in range(listeners)], free_port()
        self.port = self.ports[0]
        self.hosts = hosts or [virtual_host(*routes)]
        self.trusted_hops = trusted_hops
        self.manager_fields = manager_fields
        self.plugins = plugins
        self._around = (list(before), list(after))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-"))
        self.access_log = self.folder / "access.log" if access_log else None
        self._log_file = self.folder / "envoy.log"
        self._listeners = self.folder / "listeners.json"
        self._write(None if rules is None else plugin(rules, **(plugin_how or {})))
        bootstrap = {
            "node": {"id": "test", "cluster": "test"},
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": self.admin_port}}},
            "dynamic_resources": {"lds_config": {"path_config_source": {"path": str(self._listeners)}}},
            "static_resources": {"clusters": list(clusters)},
        }
        if stats_config:
            bootstrap["stats_config"] = stats_config
        (self.folder / "bootstrap.json").write_text(json.dumps(bootstrap))
        self._command = [binary, "-c", self.folder / "bootstrap.json", "--concurrency", str(workers), "--disable-hot-restart",
                         "--drain-time-s", str(drain_seconds), "--file-flush-interval-msec", "10"]
        self.start()

    def start(self):
        """Starts it, or after `kill` another one with the same configuration and ports; it answers when this returns."""
        with open(self._log_file, "a") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                # A test run that is killed leaves no Envoy behind (PR_SET_PDEATHSIG).
                preexec_fn=lambda: _LIBC.prctl(1, signal.SIGTERM),
            )
        try:
            eventually("Envoy is ready", self._ready)
        except BaseException:
            self.close()
            raise

    def kill(self):
        """It is gone at once, with the requests that it had."""
        self._process.kill()
        self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder)

    def _ready(self):
        if self._process.poll() is not None:
            raise AssertionError(f"Envoy ended with {self._process.returncode}:\n{self.log()}")
        try:
            return self.admin("/ready") == "LIVE\n"
        except OSError:
            return False

    def _write(self, filter):
        before, after = self._around
        filters = [*before, *([filter] * self.plugins if filter else []), *after]
        listeners = {"resources": [listener(port, self.hosts, filters, self.access_log, self.trusted_hops, self.manager_fields)
                                   for port in self.ports]}
        # Envoy watches for a rename: it never reads a half-written file.
        fresh = self._listeners.with_suffix(".new")
        fresh.write_text(json.dumps(listeners))
        fresh.rename(self._listeners)

    def configure(self, rules, **how):
        """Replaces the filter's configuration by LDS; waits for Envoy's answer and returns whether it was accepted."""
        return self.put(plugin(rules, **how))

    def put(self, filter):
        """The same with a whole filter."""
        before = self._lds()
        self._write(filter)
        after = eventually("Envoy answers the update", lambda: (now := self._lds()) != before and now, 30)
        if after["rejected"] > before["rejected"]:
            return False
        eventually("the new listener is warm", lambda: self.stat("listener_manager.total_listeners_warming") == 0)
        return True

    def _lds(self):
        return {kind: self.stat(f"listener_manager.lds.update_{kind}") for kind in ("success", "rejected")}

    def admin(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def stats(self):
        """Every counter and gauge."""
        found = json.loads(self.admin("/stats?format=json&type=All"))["stats"]
        return {entry["name"]: entry["value"] for entry in found if "value" in entry}

    def stat(self, name):
        """A counter or a gauge, 0 if it does not exist; of a rule's, the resource may be left out."""
        text = self.admin(f"/stats?filter=^{re.escape(name)}(;resource=[^;]*(;;[0-9a-f]%2B)?)?$")
        return int(text.split(": ")[1]) if ": " in text else 0

    def prometheus(self):
        """The samples of a scrape: {name with labels: value}."""
        lines = [line for line in self.admin("/stats/prometheus").splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def cpu_seconds(self):
        """The CPU time that all its threads have used, by the scheduler's account."""
        threads = pathlib.Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def resident_bytes(self):
        """What the kernel keeps of its memory."""
        return int(pathlib.Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def workers_reached(self):
        """How many workers have had a connection."""
        return sum(value > 0 for name, value in self.stats().items() if re.search(r"\.worker_\d+\.downstream_cx_total$", name))

    def log(self):
        return self._log_file.read_text(errors="replace")

    def wait_for_log(self, *sentences):
        eventually(f"the log says {sentences}", lambda: all(sentence in self.log() for sentence in sentences))

    def get(self, path, headers=(), port=None, body=None):
        """One request on a new connection, with a body if there is one: (status, headers in lower case, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=10)
        try:
            connection.request("POST" if body else "GET", path, body, dict(headers))
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()


class EnvoyTest(unittest.TestCase):
    """A test that may start Envoys; it stops them, and shows their logs if it fails."""

    def run(self, result=None):
        self._logs = []
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before:
            print("\n".join(["", f"Envoy's log of {self.id()}:", *self._logs]))

    def envoy(self, *arguments, **keywords):
        envoy = Envoy(*arguments, **keywords)
        self.addCleanup(self._stop, envoy)
        return envoy

    def upstream(self, *arguments, **keywords):
        upstream = Upstream(*arguments, **keywords)
        self.addCleanup(upstream.close)
        return upstream

    def _stop(self, envoy):
        lines = envoy.log().splitlines()
        self._logs += [line for line in lines if re.search(r"\[(warning|error|critical)\]|wasm log", line)][-20:]
        envoy.close()
