"""The figures of limits that many processes share, as tables: ./build.sh bench fleet [PART…], all parts unless some are given.

- `node`: ten Node.js processes, beside what others do with the same Redis: calls, what is admitted, waits, bytes per key.
- `speed`: a decision with a leased permit beside one of a window of the process, in turns in the same processes.
- `flood`: 512 connections to one and two Envoys, beside Envoy's global rate limit with envoyproxy/ratelimit.

Everything runs on this machine, in one round: look at the ratios.
"""

import array
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from harness import ROOT, Envoy, cluster, eventually, free_port, route
from load import Sample, most_in_any_window
from stores import Ratelimit, Redis, Webdis

PROGRAMS = ROOT / "js" / "bench" / "fleet"
PEERS = ROOT / ".tools" / "fleet-peers" / "node_modules"
PACKAGE = ROOT / "dist" / "npm"
BENCH = pathlib.Path(os.environ.get("LEAPGATE_BENCH", ROOT / "target" / "release" / "leapgate-bench"))

# Commands that are about the measurement.
OTHERS = {"info", "config|resetstat", "memory|usage", "keys", "flushall", "hello", "client|setinfo", "ping", "command", "script|load"}


def table(head, rows):
    """Text: the first column to the left, the others to the right."""
    rows = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for number, row in enumerate(rows):
        print("  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip())
        if number == 0:
            print("-" * (sum(widths) + 2 * len(widths) - 2))
    print()


def section(title, words):
    print(f"== {title}\n{words}\n", flush=True)


def per_cent(part):
    return f"{100 * part:.1f} %"


# ---- Redis ----------------------------------------------------------------------------------------


def begin_to_count(redis):
    """An empty Redis that has counted no commands."""
    redis.command("FLUSHALL")
    redis.command("CONFIG", "RESETSTAT")


def commands(redis):
    """How many commands it has run, by name, also within scripts."""
    found = re.findall(r"^cmdstat_(\S+?):calls=(\d+)", redis.command("INFO", "commandstats").decode(), re.MULTILINE)
    return collections.Counter({name: int(calls) for name, calls in found if name not in OTHERS})


def bytes_of_keys(redis):
    return sum(redis.command("MEMORY", "USAGE", key) or 0 for key in redis.command("KEYS", "*"))


# ---- Node.js processes ----------------------------------------------------------------------------

PROCESSES = 10
SUBJECTS = [
    "leapgate",
    "rate-limiter-flexible",
    "rate-limiter-flexible, with its cache of refusals",
    "rate-limit-redis",
    "@upstash/ratelimit, sliding",
]


class Traffic(NamedTuple):
    """A limit, and how much is asked for: so many times the limit."""

    name: str
    limit: int
    window_ms: int
    samples: int
    times: float
    windows: float

    def rate(self):
        return self.times * self.limit * 1000 / self.window_ms

    def seconds(self):
        return self.windows * self.window_ms / 1000


SECOND = Traffic("500 a second, twice the limit", 500, 1000, 20, 2, 10)
FLOOD = Traffic("500 a second, ten times the limit", 500, 1000, 20, 10, 8)
MINUTE = Traffic("6,000 a minute, twice the limit", 6000, 60_000, 60, 2, 2)


class Folder:
    """A folder with the programs and the packages that they name."""

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-bench-"))
        modules = self.path / "node_modules"
        modules.mkdir()
        for package in PEERS.iterdir():
            (modules / package.name).symlink_to(package)
        (modules / "leapgate").symlink_to(PACKAGE)
        for program in PROGRAMS.glob("*.mjs"):
            shutil.copy(program, self.path)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def node(self, *words, **how):
        return subprocess.Popen(["node", *map(str, words)], cwd=self.path, stdout=subprocess.PIPE, text=True, **how)


class Outcome(NamedTuple):
    requests: list
    commands: collections.Counter
    cpu_seconds: float
    failed: int
    bytes: int


def drive(folder, redis, rest_port, subject, traffic):
    """Lets all processes of a subject send their requests."""
    files = [folder.path / f"requests-{i}" for i in range(PROCESSES)]
    numbers = [traffic.limit, traffic.window_ms, traffic.samples, traffic.rate() / PROCESSES]
    running = [folder.node("worker.mjs", subject, redis.port, rest_port, *numbers, file, stdin=subprocess.PIPE) for file in files]
    for process in running:
        process.stdout.readline()
    begin_to_count(redis)
    begin = time.monotonic() + 0.1
    end = begin + traffic.seconds()
    for process in running:
        process.stdin.write(f"{begin} {end}\n")
        process.stdin.flush()
    time.sleep(max(0, end - 0.05 - time.monotonic()))
    used = bytes_of_keys(redis)
    said = [json.loads(process.communicate()[0]) for process in running]
    requests = []
    for file in files:
        doubles = array.array("d", file.read_bytes())
        requests += zip(doubles[0::3], doubles[1::3], doubles[2::3])
    requests.sort()
    return Outcome(requests, commands(redis), sum(of["cpuSeconds"] for of in said), sum(of["failed"] for of in said), used)


def ideal(times, traffic):
    """How many of these requests one strict window for all processes would admit, without a network."""
    bucket = traffic.window_ms / 1000 / traffic.samples
    window, total, admitted = collections.deque(), 0, 0
    for at in times:
        number = int(at / bucket)
        while window and window[0] + traffic.samples < number:
            window.popleft()
            total -= 1
        if total < traffic.limit:
            total += 1
            admitted += 1
            window.append(number)
    return admitted


def row_of(subject, traffic, outcome):
    samples = [Sample(sent, answered, 200) for sent, answered, passed in outcome.requests if passed]
    number = len(outcome.requests)
    waits = statistics.quantiles([(answered - sent) * 1000 for sent, answered, _ in outcome.requests], n=100)
    calls = outcome.commands["evalsha"] + outcome.commands["eval"]
    return [
        subject,
        f"{calls / number:.3f}",
        f"{outcome.commands.total() / number:.2f}",
        per_cent(len(samples) / ideal([sent for sent, *_ in outcome.requests], traffic)),
        most_in_any_window(samples, traffic.window_ms / 1000),
        f"{waits[49]:.2f}",
        f"{waits[98]:.2f}",
        f"{outcome.cpu_seconds / number * 1e6:.0f}",
        outcome.bytes,
        outcome.failed,
    ]


def bench_node(redis):
    head = ["", "calls / request", "commands / request", "of one window's", "worst interval", "p50 ms", "p99 ms", "CPU µs / request",
            "bytes / key", "errors"]
    rest_port = free_port()
    with Folder() as folder:
        rest = folder.node("rest.mjs", redis.port, rest_port)
        try:
            for traffic, subjects in ((SECOND, SUBJECTS), (FLOOD, SUBJECTS), (MINUTE, SUBJECTS[:1])):
                section(f"fleet: {traffic.name}, {PROCESSES} processes, {traffic.seconds():.0f} s each",
                        "`commands` counts those in scripts; `of one window's`: of what one strict window for all processes would have "
                        "admitted of the same requests.")
                # The window and the longest lease.
                redis.wait_for_age(1.3 * traffic.window_ms / 1000 + 2)
                rows = [row_of(subject, traffic, drive(folder, redis, rest_port, subject, traffic)) for subject in subjects]
                table(head, rows)
        finally:
            rest.kill()
            rest.communicate()


# ---- speed ----------------------------------------------------------------------------------------

ROUNDS = 7


def bench_speed(redis, processes=2):
    section(f"fleet: a leased decision beside a local one, {processes} processes, medians of {ROUNDS} rounds each", "Aim: 1.2 times.")
    rows = []
    for keys in (1, 1000):
        begin_to_count(redis)
        with Folder() as folder:
            running = [folder.node("speed.mjs", redis.port, ROUNDS, keys) for _ in range(processes)]
            said = [json.loads(process.communicate()[0]) for process in running]
        medians = {figure: statistics.median(sum((of[figure] for of in said), [])) for figure in ("cpu", "p99")}
        rows.append([f"{keys} keys" if keys > 1 else "1 key", f"{medians['cpu']:.2f}", f"{medians['p99']:.2f}",
                     per_cent(max(of["unanswered"] for of in said))])
    table(["", "CPU time, times", "p99, times", "without a permit"], rows)


# ---- flood ----------------------------------------------------------------------------------------

CONNECTIONS = 512
LIMIT = 100
SECONDS = 10
RLS = [{"key": "rule", "value": "hot", "rate_limit": {"unit": "second", "requests_per_unit": LIMIT}}]


def leased(port, timeout_ms):
    """The filter, which leases."""
    rule = {"resource": "hot", "id": "hot", "count": LIMIT, "clusterMode": True, "clusterConfig": {"thresholdType": 1}}
    store = {"cluster": "store", "protocol": "webdis", "timeoutMs": timeout_ms}
    return {"rules": {"flowRules": [rule], "envoy": {"store": store}}, "store": cluster("store", port)}


def global_filter(port, denies):
    """Envoy's own filter, which asks the service about each request."""
    filter = {"name": "envoy.filters.http.ratelimit", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit", "domain": "leapgate",
        "failure_mode_deny": denies,
        "rate_limit_service": {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "store"}}}}}
    return {"rules": None, "store": cluster("store", port, http2=True), "before": [filter]}


def flooded_envoy(upstream, rules, store, before=()):
    """An Envoy that forwards to `upstream`: Envoy's filter lets routes be that answer by themselves."""
    hot = route("hot", cluster="up")
    hot["route"]["rate_limits"] = [{"actions": [{"generic_key": {"descriptor_key": "rule", "descriptor_value": "hot"}}]}]
    return Envoy(rules, [hot], workers=2, clusters=[store, cluster("up", upstream.port)], before=before)


def flood(envoys):
    """So many connections to the Envoys; what the load generator has seen: (requests a second, waits in ms, samples admitted)."""
    ports = ",".join(str(envoy.port) for envoy in envoys)
    words = [BENCH, "flood", ports, str(CONNECTIONS), str(SECONDS)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    figures = json.loads(lines[0])
    samples = [Sample(int(sent) / 1e9, int(answered) / 1e9, 200) for sent, answered in map(str.split, lines[1:])]
    return figures, samples


def bench_flood(redis):
    section(f"fleet: {CONNECTIONS} connections against a limit of {LIMIT} a second, {SECONDS} s each, Envoys of two workers",
            "`calls`: of the filter to what is behind its cluster; `commands`: of Redis, also in scripts.")
    rows = []
    with Webdis(redis) as webdis, Ratelimit(redis, RLS) as service, Envoy(None, [route("hot")], workers=1) as upstream:
        subjects = {
            "leapgate, webdis": leased(webdis.port, 50),
            "leapgate, webdis, timeoutMs 500": leased(webdis.port, 500),
            "Envoy's global filter": global_filter(service.port, False),
            "Envoy's global filter, failure_mode_deny": global_filter(service.port, True),
        }
        redis.wait_for_age(4)
        for number in (1, 2):
            for name, how in subjects.items():
                with contextlib.ExitStack() as stack:
                    envoys = [stack.enter_context(flooded_envoy(upstream, **how)) for _ in range(number)]
                    begin_to_count(redis)
                    figures, samples = flood(envoys)
                    asked = sum(envoy.stat("cluster.store.upstream_rq_total") for envoy in envoys)
                    used = commands(redis).total()
                rows.append([f"{name}, {number} Envoy{'s' * (number > 1)}", most_in_any_window(samples, 1.0),
                             f"{len(samples) / SECONDS:.0f}", f"{asked / SECONDS:.0f}", f"{asked / figures['requests']:.4f}",
                             f"{used / SECONDS:.0f}", f"{figures['p50_ms']:.1f}", f"{figures['p99_ms']:.1f}",
                             f"{figures['requests'] / SECONDS:.0f}", figures["others"]])
    table(["", "worst interval", "admitted / s", "calls / s", "calls / request", "commands / s", "p50 ms", "p99 ms", "requests / s",
           "other answers"], rows)


PARTS = {"flood": bench_flood, "speed": bench_speed, "node": bench_node}


def main(words):
    unknown = [word for word in words if word not in PARTS]
    if unknown:
        sys.exit(f"bench fleet: there is no part '{unknown[0]}'; use some of {', '.join(PARTS)}, or none for all.")
    with Redis() as redis:
        for name in PARTS:
            if not words or name in words:
                PARTS[name](redis)


if __name__ == "__main__":
    main(sys.argv[1:])
