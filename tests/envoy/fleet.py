"""A fleet on one machine: real Envoys and real Node.js processes that lease from one real Redis, through a link that may be bad.

All of them are under load, and each admission is in a log, with the time just before the request and just after the answer, by
CLOCK_MONOTONIC, which all processes of a machine share. So the logs merge, and every interval can be checked.
"""

import asyncio
import contextlib
import ctypes
import itertools
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import NamedTuple

from harness import ROOT, Envoy, cluster, eventually, free_port, route
from load import Load, Sample, Source, most_in_any_window
from stores import Redis, Webdis

PACKAGE = ROOT / "dist" / "npm"
CLIENTS = ROOT / ".tools" / "frameworks" / "node_modules"

_LIBC = ctypes.CDLL(None)


# ---- the link to the store ------------------------------------------------------------------------


class Link:
    """A TCP proxy in front of a server, which delays what passes, cuts connections or holds them up."""

    def __init__(self, server_port):
        self._server_port = server_port
        self.port = free_port()
        self._delay = (0.0, 0.0)
        self._cut = 0.0
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks = set()
        listening = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,))
        self._thread.start()
        listening.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def delay(self, shortest, longest):
        """From now on, each piece of data arrives so many seconds later, in order."""
        self._delay = (shortest, longest)

    def cut(self, part):
        """From now on, this part of all pieces of data is lost, and its connection with it."""
        self._cut = part

    def hold(self):
        """From now on nothing passes, and no connection ends: what is sent arrives when `clear` is called."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def clear(self):
        """Everything passes at once again."""
        self._delay, self._cut = (0.0, 0.0), 0.0
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self):
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.05, self._loop.stop)
        self._thread.join()

    def _run(self, listening):
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", self.port))
        listening.set()
        self._loop.run_forever()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        there = None
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._server_port)
            ways = [asyncio.ensure_future(self._carry(*way)) for way in ((reader, there), (back, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # no server listens, or the link is closed
        finally:
            for end in (writer, there):
                if end:
                    end.transport.abort()
            self._tasks.discard(task)

    async def _carry(self, reader, writer):
        """Carries data one way until an end closes or the link cuts."""
        underway = asyncio.Queue()

        async def receive():
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    underway.put_nowait((self._loop.time() + random.uniform(*self._delay), data))
            underway.put_nowait((0, b""))

        receiving = asyncio.ensure_future(receive())
        try:
            while True:
                due, data = await underway.get()
                if not data or random.random() < self._cut:
                    return
                await asyncio.sleep(due - self._loop.time())
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other end has gone
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)


# ---- a Node.js process ----------------------------------------------------------------------------


class NodeProcess:
    """A Node.js process with a shared limiter for each rule, which sends itself requests: `fleet_node.mjs`."""

    def __init__(self, folder, name, redis_port, rules, when_down, rate, key_prefix="leapgate:"):
        for path, command in ((PACKAGE, "./build.sh npm"), (CLIENTS / "ioredis", "./build.sh test envoy")):
            if not path.exists():
                raise AssertionError(f"{path} is missing: {command} makes it")
        self.name = name
        self._log = folder / f"{name}.log"
        self._said = folder / f"{name}.said"
        # Packages are imported by name, as users do.
        modules = folder / "node_modules"
        if not modules.exists():
            modules.mkdir()
            (modules / "leapgate").symlink_to(PACKAGE)
            (modules / "ioredis").symlink_to(CLIENTS / "ioredis")
            shutil.copy(pathlib.Path(__file__).with_name("fleet_node.mjs"), folder)
        self._arguments = [redis_port, self._log, when_down, rate, key_prefix]
        self._folder = folder
        # A shared limiter always has keys.
        self.rules = [rule for rule in rules if rule.keys]
        self._limits = [rule.of_node() for rule in self.rules]
        self._admitted = []
        self._read_to = 0
        self._process = None
        self.start()

    def start(self):
        words = ["node", "fleet_node.mjs", *self._arguments, *itertools.chain(*self._limits)]
        with open(self._said, "a") as said:
            self._process = subprocess.Popen(
                [str(word) for word in words], cwd=self._folder, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True,
                preexec_fn=lambda: _LIBC.prctl(1, signal.SIGKILL))

    def kill(self):
        """It is gone at once; what it has logged stays."""
        self._process.kill()
        self._process.stdin.close()
        self._process.wait()

    def suspend(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def set_limit(self, rule, limit):
        for of in self._limits:
            if of[0] == rule:
                of[1] = limit
        self._process.stdin.write(f"{rule} {limit}\n".encode())
        self._process.stdin.flush()

    def said(self):
        """What it has printed: warnings, or why it has ended."""
        return self._said.read_text(errors="replace")

    def admitted(self):
        """Its log: (rule, key, sample) of each admission."""
        if self._log.exists():
            with open(self._log) as log:
                log.seek(self._read_to)
                text = log.read()
            # The last line may be half a line: it is being written, or the process was killed meanwhile.
            lines = text[:text.rfind("\n") + 1]
            self._read_to += len(lines)
            for rule, key, sent, answered in (line.split(" ") for line in lines.splitlines()):
                self._admitted.append((rule, key, Sample(int(sent) / 1e9, int(answered) / 1e9, 200)))
        return self._admitted


# ---- rules and admissions -------------------------------------------------------------------------


class Rule(NamedTuple):
    """A limit of the whole fleet; with keys, of each of them."""

    name: str
    limit: int
    window_ms: int = 1000
    buckets: int = 20
    keys: tuple = ()

    def of_envoy(self):
        leased = {"clusterMode": True, "clusterConfig": {"thresholdType": 1}}
        keyed = {"key": [{"header": "x-client"}]} if self.keys else {}
        return {"resource": self.name, "id": self.name, "count": self.limit, "intervalMs": self.window_ms, "sampleCount": self.buckets,
                **keyed, **leased}

    def of_node(self):
        """The arguments of `fleet_node.mjs`."""
        return [self.name, self.limit, self.window_ms, self.buckets, ",".join(self.keys)]


class Over(NamedTuple):
    """An interval with more admissions than its limit."""

    rule: str
    key: str
    most: int
    limit: int


def over(admitted, limits, windows, since=0.0, until=float("inf")):
    """What was admitted too often in some interval: `admitted` is (rule, key, sample) of each admission, merged from all logs, `limits`
    and `windows` (in seconds) are by rule. Only samples that were sent in this time count."""
    by_key = {}
    for rule, key, sample in admitted:
        if since <= sample.sent < until:
            by_key.setdefault((rule, key), []).append(sample)
    worst = {at: most_in_any_window(samples, windows[at[0]]) for at, samples in by_key.items()}
    return [Over(*at, most, limits[at[0]]) for at, most in worst.items() if most > limits[at[0]]]


# ---- the fleet ------------------------------------------------------------------------------------


class Fleet:
    """A Redis, a webdis, and so many Envoys of four workers and Node.js processes, under load.

    All of them reach Redis over `link`: Envoys by webdis, the others by ioredis. Requests come to each Envoy and each process
    at `rate` a second, for each rule.
    """

    def __init__(self, rules, when_down, envoys=2, processes=3, rate=150):
        self.rules = rules
        self.when_down = when_down
        self.rate = rate
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-fleet-"))
        self._stack = contextlib.ExitStack()
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self.redis = self._stack.enter_context(Redis())
            self.link = self._stack.enter_context(Link(self.redis.port))
            self.webdis = self._stack.enter_context(Webdis(_At(self.link.port)))
            self.envoys = [self._stack.enter_context(self._envoy()) for _ in range(envoys)]
            self.processes = [self.process(f"node-{i}") for i in range(processes)]
            self.sources = [self._sources() for _ in self.envoys]
            for envoy, sources in zip(self.envoys, self.sources):
                self._stack.enter_context(Load(envoy.port, *sources.values()))
        except BaseException:
            self._stack.close()
            raise

    def close(self):
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def document(self):
        """What the Envoys are configured with. The time-out is shorter than some delays of tests: answers must come after it, too."""
        store = {"cluster": "webdis", "protocol": "webdis", "timeoutMs": 100, "maxWaitMs": 50, "whenDown": self.when_down}
        return {"flowRules": [rule.of_envoy() for rule in self.rules], "envoy": {"store": store}}

    def _envoy(self):
        routes = [route(rule.name) for rule in self.rules]
        return Envoy(self.document(), routes, workers=4, clusters=[cluster("webdis", self.webdis.port)])

    def process(self, name, **how):
        """Another Node.js process of this fleet."""
        process = NodeProcess(self.folder, name, self.link.port, self.rules, self.when_down, self.rate, **how)
        self._stack.callback(process.kill)
        return process

    def _sources(self):
        """For each rule and key the requests of one client."""
        found = {}
        for rule in self.rules:
            keys = rule.keys or ("",)
            for key in keys:
                headers = f"x-client: {key}\r\n" if key else ""
                found[rule.name, key] = Source(f"/{rule.name}", 12 // len(keys), self.rate / len(keys), headers)
        return found

    def set_limits(self, rules):
        """Each part of the fleet gets other limits, one after another."""
        self.rules = rules
        for envoy in self.envoys:
            if not envoy.configure(self.document()):
                raise AssertionError("an Envoy does not take the new limits")
        for process in self.processes:
            for rule in process.rules:
                process.set_limit(rule.name, {rule.name: rule.limit for rule in rules}[rule.name])

    def _of_envoy(self, number):
        """(rule, key, sample) of each admission by this Envoy."""
        sources = self.sources[number].items()
        return [(*at, sample) for at, source in sources for sample in source.admitted()]

    def parts(self):
        """Of each part its name, its rules, and its log: (rule, key, sample) of each admission."""
        envoys = [(f"envoy-{i}", self.rules, self._of_envoy(i)) for i in range(len(self.envoys))]
        return envoys + [(process.name, process.rules, process.admitted()) for process in self.processes]

    def admitted(self):
        """The merged logs."""
        return list(itertools.chain(*(log for _, _, log in self.parts())))

    def said(self):
        """The latest lines of what the parts have printed, apart from what Envoy says of itself."""
        logs = {f"envoy-{i}": [line for line in envoy.log().splitlines() if "wasm log" in line] for i, envoy in enumerate(self.envoys)}
        logs |= {process.name: process.said().splitlines() for process in self.processes}
        return "\n".join(f"{name}: {line}" for name, lines in logs.items() for line in lines[-10:])


class _At(NamedTuple):
    """Where webdis finds Redis: behind the link."""

    port: int
    password: None = None
