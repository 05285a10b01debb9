"""The demonstration of `./build.sh run`: envoy.yaml in a real Envoy, before a small upstream, under a burst on every route.

Ports and the number of workers come from the environment (SETTINGS below), for machines where the ports of
envoy.yaml are taken. Everything listens on 127.0.0.1, and nothing is left running afterwards.
"""

import ctypes
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).parent.parent
ENVOY = ROOT / ".tools" / "envoy"
RUN = ROOT / ".tools" / "run"
ACCESS_LOG = RUN / "access.log"
RULES = RUN / "rules.json"

# The settings that the environment may change, and their values in envoy.yaml.
SETTINGS = {"LEAPGATE_PORT": 10000, "LEAPGATE_UPSTREAM_PORT": 10001, "LEAPGATE_ADMIN_PORT": 9901}
WORKERS = "LEAPGATE_WORKERS"

# A burst offers each route this many times its limit, over several connections, so that every worker gets some.
TIMES = 4
CONNECTIONS = 8


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers every GET with its path."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: Nagle's algorithm would hold the second back for 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self):
        body = f"the upstream's answer to {self.path}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Keeps the terminal for the table."""


def number(name, default):
    text = os.environ.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        sys.exit(f"build.sh run: {name} is {text!r}; give it a number from 1 to 65535.")
    return int(text)


def refuse_taken(ports):
    """Envoy would share a port with another Envoy (SO_REUSEPORT) and answer half of the requests."""
    for name, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                sys.exit(f"build.sh run: cannot use port {port} of 127.0.0.1 ({error.strerror}); "
                         f"choose another: {name}=PORT ./build.sh run")


def start_envoy(ports, workers):
    """Starts Envoy on envoy.yaml, with the chosen ports in place of the ports in the file."""
    chosen = {default: ports[name] for name, default in SETTINGS.items()}
    text = (ROOT / "envoy" / "envoy.yaml").read_text()
    text = re.sub(r"(?<=port_value: )\d+", lambda match: str(chosen[int(match[0])]), text)
    RUN.mkdir(parents=True, exist_ok=True)
    # Envoy appends to it.
    ACCESS_LOG.write_text("")
    text = text.replace("path: /dev/stdout", f"path: {ACCESS_LOG}")
    (RUN / "envoy.yaml").write_text(text)
    libc = ctypes.CDLL(None)
    with open(RUN / "envoy.log", "w") as log:
        return subprocess.Popen(
            [ENVOY, "-c", RUN / "envoy.yaml", "--concurrency", str(workers), "--disable-hot-restart",
             # By default lines of the access log come after 10 seconds.
             "--file-flush-interval-msec", "200"],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            # Ctrl-C is ours to handle; and if this process is killed, the kernel (PR_SET_PDEATHSIG)
            # stops Envoy.
            start_new_session=True, preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),
        )


def admin(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def wait_ready(envoy, port):
    while envoy.poll() is None:
        try:
            if admin(port, "/ready")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    reasons = [line for line in (RUN / "envoy.log").read_text().splitlines() if "[critical]" in line or "[error]" in line]
    sys.exit("\n".join([*reasons, f"build.sh run: Envoy did not start; its log is {RUN / 'envoy.log'}"]))


def routes_and_limits(port):
    """(route, path, rule) from the configuration that Envoy has loaded, so that the table cannot differ from it."""
    dump = json.loads(admin(port, "/config_dump?resource=static_listeners")[1])
    manager = dump["configs"][0]["listener"]["filter_chains"][0]["filters"][0]["typed_config"]
    document = manager["http_filters"][0]["typed_config"]["config"]["configuration"]["value"]
    # The one source of the rules is envoy.yaml: the command line is given what Envoy was.
    RULES.write_text(document)
    rules = json.loads(document)["flowRules"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    paths = {route["name"]: route["match"]["path_separated_prefix"] for route in routes}
    return [(rule["resource"], paths[rule["resource"]], rule) for rule in rules]


def burst(port, path, requests):
    """Sends this many requests, over several connections at once; returns their statuses."""
    statuses = []

    def client(share):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(share):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()

    shares = [requests // CONNECTIONS + (i < requests % CONNECTIONS) for i in range(CONNECTIONS)]
    clients = [threading.Thread(target=client, args=(share,), daemon=True) for share in shares]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return statuses


def shown(path):
    """A path as it is typed at the top of the checkout."""
    return path.relative_to(ROOT)


def show(port, admin_port, workers):
    print(f"Envoy with {workers} worker threads on http://127.0.0.1:{port}; its log is {RUN / 'envoy.log'}\n")
    print(f"{'route':<8}{'limit':<18}{'sent':>6}{'passed':>8}{'limited':>9}")
    limits = routes_and_limits(admin_port)
    for route, path, rule in limits:
        seconds = rule.get("intervalMs", 1000) / 1000
        started = time.monotonic()
        statuses = burst(port, path, int(TIMES * rule["count"]))
        took = time.monotonic() - started
        limit = f"{rule['count']:g} in {seconds:g} s"
        print(f"{route:<8}{limit:<18}{len(statuses):>6}{statuses.count(200):>8}{statuses.count(429):>9}")
        if took > seconds:
            print(f"        (the burst took {took:.1f} s, longer than the window, so more than one limit may pass)")
    path = limits[0][1]
    print(f"""
Try it:
  curl -i http://127.0.0.1:{port}{path}
  for i in $(seq 10); do curl -s -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{port}{path}; done
  curl -s http://127.0.0.1:{admin_port}/stats/prometheus | grep leapgate
  ./build.sh cli && dist/leapgate replay {shown(RULES)} {shown(ACCESS_LOG)}

Ctrl-C stops everything.""")


def stop(*_):
    # The first signal ends the program, through `finally`; later ones must not cut the cleaning up short.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    sys.exit(0)


def main():
    sys.stdout.reconfigure(line_buffering=True)
    ports = {name: number(name, default) for name, default in SETTINGS.items()}
    workers = number(WORKERS, 4)
    refuse_taken(ports)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, stop)
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", ports["LEAPGATE_UPSTREAM_PORT"]), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    envoy = start_envoy(ports, workers)
    try:
        wait_ready(envoy, ports["LEAPGATE_ADMIN_PORT"])
        show(ports["LEAPGATE_PORT"], ports["LEAPGATE_ADMIN_PORT"], workers)
        envoy.wait()
        sys.exit(f"build.sh run: Envoy ended by itself; its log is {RUN / 'envoy.log'}")
    except BrokenPipeError:
        # The reader of the table has gone: the demonstration ends, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        envoy.terminate()
        try:
            envoy.wait(5)
        except subprocess.TimeoutExpired:
            envoy.kill()


if __name__ == "__main__":
    main()
