"""An hour's requests at full speed over four workers, with updates: ./build.sh soak [MINUTES]

`tests/bench/src/soak.rs` asks a real Envoy as fast as it answers, and prints each request that was admitted. Here the rules change and
change back every few seconds, and each limit's worst interval is found while the requests come. It fails if an interval is over its limit,
memory grows, refusals of a plain flood do not come from the cache, the counters are not what the client has seen, or the log has an error.
"""

import bisect
import collections
import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from bench_fleet import table
from endings import Behaving
from harness import ROOT, Envoy, cluster, eventually, route
from load import Sample

BENCH = pathlib.Path(os.environ.get("LEAPGATE_BENCH", ROOT / "target" / "release" / "leapgate-bench"))
MINUTES = 60
PAUSE = 2.5  # seconds between two updates
FLOOD = 10  # seconds of the plain flood
DRAIN = 1  # seconds for which connections of a listener that is replaced go on under its rules
# A printed line is at most so much later than a line with a later answer.
LATENESS = 5.0
# Of the resident memory in the middle: what the second half may add to it, by the line through its samples. Envoy's allocator keeps
# what it has had for a burst, so single samples differ by more.
GROWTH = 0.03
REPEATED = 0.5
# What a VM counts after its last tick is not exported if it is replaced; ticks come each 10 ms, or later if the machine is busy.
LAST_TICK = 0.2
STATUSES = (200, 429, 500, 503, "others", "lost")


# ---- the judge of intervals -----------------------------------------------------------------------


class WorstInterval:
    """`load.most_in_any_window` of samples that come one after another, in memory for those of one window."""

    def __init__(self, window):
        self.window = window
        self.worst = 0
        self._settled = float("-inf")
        # As in `most_in_any_window`: the samples that are in no interval to come are only counted.
        self._sent, self._sent_before = [], 0
        self._answered, self._answered_before = [], 0

    def add(self, sample):
        """A sample that was answered after the time to which the intervals are settled."""
        if sample.answered <= self._settled:
            raise ValueError(f"an answer of {sample.answered} came when all until {self._settled} had come")
        if sample.answered - sample.sent <= self.window:
            bisect.insort(self._sent, sample.sent)
            bisect.insort(self._answered, sample.answered)

    def settle(self, until=float("inf")):
        """All samples answered until then have come; true if none is kept."""
        self._settled = max(self._settled, until)
        done = bisect.bisect_right(self._sent, self._settled - self.window)
        for i, begin in enumerate(self._sent[:done]):
            ended = self._answered_before + bisect.bisect_right(self._answered, begin + self.window)
            self.worst = max(self.worst, ended - self._sent_before - i)
        if done:
            # Later intervals begin later: these samples have ended before the ends of them all.
            gone = bisect.bisect_right(self._answered, self._sent[done - 1] + self.window)
            del self._sent[:done], self._answered[:gone]
            self._sent_before += done
            self._answered_before += gone
        return not self._sent


class Limit:
    """A promise about the requests of some sources: at most `count` in any interval, for each key, while the promise is in force."""

    def __init__(self, name, sources, count, window=1.0, in_force=None):
        self.name, self.sources, self.count, self.window = name, sources, count, window
        self.in_force = in_force  # periods, or `None` for always
        self._worst = 0
        self._judges = {}

    @property
    def worst(self):
        return max([self._worst, *(judge.worst for judge in self._judges.values())])

    def add(self, key, sample):
        if self.in_force is not None and not self.in_force.contain(sample):
            return
        judge = self._judges.get(key)
        if judge is None:
            judge = self._judges[key] = WorstInterval(self.window)
        judge.add(sample)

    def settle(self, until=float("inf")):
        """As of a `WorstInterval`; keys without a sample in a window are forgotten."""
        for key in [key for key, judge in self._judges.items() if judge.settle(until)]:
            self._worst = max(self._worst, self._judges.pop(key).worst)


class Periods:
    """When something was in force; what happens at the edges belongs to none."""

    def __init__(self, margin=1.0):
        self._margin = margin
        self._periods = collections.deque(maxlen=4)  # samples of older ones have come long ago

    def begin(self, at):
        self._periods.append([at + self._margin, float("inf")])

    def end(self, at):
        if self._periods:
            self._periods[-1][1] = min(self._periods[-1][1], at - self._margin)

    def contain(self, sample):
        return any(begin <= sample.sent and sample.answered <= end for begin, end in self._periods)


def slope(points):
    """Of the line through points, by least squares: what y grows by with x."""
    if len(points) < 2:
        return 0.0
    x0, y0 = (sum(values) / len(points) for values in zip(*points))
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def growth(points):
    """What the second half of some (time, bytes) has grown by from its beginning to its end, as a part of their mean."""
    half = points[len(points) // 2:]
    mean = sum(y for _, y in half) / len(half)
    return slope(half) * (half[-1][0] - half[0][0]) / mean


# ---- the load -------------------------------------------------------------------------------------


class Asking:
    """`leapgate-bench soak` on a port: what it has counted, and the samples that it prints, given to limits as they come."""

    def __init__(self, port, sources, limits=()):
        self.counts = {words.split()[0]: collections.Counter() for words in sources}
        self._limits = collections.defaultdict(list)
        for limit in limits:
            for source in limit.sources:
                self._limits[source].append(limit)
        self._all = limits
        self.failure = None
        # An interrupt from the keyboard is for the process that started it: it ends when its input does.
        self._process = subprocess.Popen([BENCH, "soak", str(port), *sources], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         start_new_session=True)
        self._process.stdout.readline()
        self.begin = time.monotonic()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._thread.join(30)
        if self._thread.is_alive():
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def check(self):
        """It goes on."""
        if self.failure:
            raise self.failure
        if self._process.poll() is not None:
            raise AssertionError(f"the load ended with {self._process.returncode}")

    def _read(self):
        try:
            settled, newest = 0.0, 0.0
            for line in self._process.stdout:
                kind, source, *words = line.split()
                if kind == "s":
                    self.counts[source] = collections.Counter(dict(zip(STATUSES, map(int, words))))
                    continue
                key, sent, answered = map(int, words)
                sample = Sample(self.begin + sent / 1e9, self.begin + answered / 1e9, 200)
                newest = max(newest, sample.answered)
                for limit in self._limits[source]:
                    limit.add(key, sample)
                if newest - settled > 2 * LATENESS:
                    settled = newest - LATENESS
                    for limit in self._all:
                        limit.settle(settled)
            for limit in self._all:
                limit.settle()
        except Exception as failure:  # handed to the thread that asks
            self.failure = failure

    def total(self, *statuses):
        return sum(counts[status] for counts in self.counts.values() for status in statuses)


# ---- the rules ------------------------------------------------------------------------------------

HOT, KEY, FLOODED, PACE, PRIORITY = 200, 20, 10, 100, 100
BY_KEY = [{"header": "x-key"}]
# NAME CONNECTIONS RATE KEYS PATH [HEADER]
SOURCES = [
    "hot 24 0 - /hot",
    "long 4 0 - /long",
    "keyed 8 0 10000 /keyed",
    "flooded 4 0 4 /flooded",
    "new 4 0 new /flooded",
    "throttle 8 0 - /throttle",
    "low 4 0 - /priority",
    "high 4 60 - /priority x-priority: high",
    "breaker 4 100 - /breaker",
    "calm 2 20 - /calm",
]
# Which sources a rule's counters are of.
COUNTED = {"hot": ["hot"], "long": ["long"], "keyed": ["keyed"], "flooded": ["flooded", "new"], "throttle": ["throttle"],
           "priority": ["low", "high"], "calm": ["calm"]}


def document(low=False, inserted=0, wide=False):
    """The rules; `low` halves two counts, and the others leave every limit as it is."""
    share = 0.5 if low else 1
    hot = {"resource": "hot", "id": "hot", "count": HOT * share}
    return {
        "flowRules": [
            *({"resource": f"other-{i}", "count": 1} for i in range(inserted)),
            *([{**hot, "id": "wide", "count": 10 * HOT}] if wide else []),
            hot,
            {"resource": "long", "id": "long", "count": 10 * HOT, "intervalMs": 10_000},
            {"resource": "keyed", "id": "keyed", "count": KEY * share, "key": BY_KEY},
            {"resource": "flooded", "id": "flooded", "count": FLOODED, "key": BY_KEY, "maxKeys": 1000},
            {"resource": "throttle", "id": "throttle", "count": PACE, "controlBehavior": "throttle", "maxQueueingTimeMs": 50},
            {"resource": "priority", "id": "priority", "count": PRIORITY},
            {"resource": "calm", "id": "calm", "count": 1000},
        ],
        "degradeRules": [{"resource": "breaker", "id": "breaker", "grade": "errorRatio", "count": 0.5, "timeWindow": 1,
                          "minRequestAmount": 5, "statIntervalMs": 1000}],
        "envoy": {"prioritized": {"header": "x-priority", "value": "high"}},
    }


class Update(NamedTuple):
    low: bool
    how: dict
    vm: int = 0
    wrong: bool = False


# Over and over; the counts change at the first and the sixth.
UPDATES = [
    Update(True, {}), Update(True, {"inserted": 40}), Update(True, {"wide": True}), Update(True, {}, vm=1), Update(True, {}, vm=1, wrong=True),
    Update(False, {}, vm=1), Update(False, {"wide": True}, vm=1), Update(False, {"inserted": 40}, vm=1), Update(False, {}), Update(False, {}, wrong=True),
]


class Run(NamedTuple):
    """What a soak has seen."""

    seconds: float
    vms: int  # updates that replaced the VMs
    limits: list
    counts: dict  # of each source, by status
    counters: dict  # of each rule: (passed, blocked) as the filter says
    memory: list  # (seconds, bytes)
    repeated: int  # of the plain flood
    refused: int  # likewise, as the client has seen
    updates: int
    wrong: int  # updates that were not answered as they should
    errors: list  # lines of the log


def judge(run):
    """What is wrong, in sentences."""
    for limit in run.limits:
        if limit.worst > limit.count:
            yield f"{limit.name}: {limit.worst} requests in an interval, the limit is {limit.count:g}"
        if limit.worst < 0.5 * limit.count:
            yield f"{limit.name}: at most {limit.worst} requests in an interval: that is no test of a limit of {limit.count:g}"
    for rule, sources in COUNTED.items():
        lost = sum(run.counts[source]["lost"] for source in sources)
        for kind, status, said in zip(("passed", "blocked"), (200, 429), run.counters[rule]):
            seen = sum(run.counts[source][status] for source in sources)
            if not seen * (1 - run.vms * LAST_TICK / run.seconds) - run.vms <= said <= seen + lost:
                yield f"the counter `{kind}` of {rule} is {said}, clients have seen {seen} and lost {lost}"
    requests = sum(counts.total() for counts in run.counts.values())
    lost = sum(counts["lost"] for counts in run.counts.values())
    # Of a listener that is replaced, the connections that it has not accepted.
    if lost > 100 * run.updates:
        yield f"{lost} of {requests} requests have no answer, in {run.updates} updates"
    for source, counts in run.counts.items():
        allowed = {"breaker": (200, 500, 503), "calm": (200,)}.get(source, (200, 429))
        others = {status: number for status, number in counts.items() if number and status not in (*allowed, "lost")}
        if others:
            yield f"{source} had other answers: {others}"
        if not counts[200]:
            yield f"{source} had no request admitted"
    grown = growth(run.memory)
    if grown > GROWTH:
        yield f"memory grew by {grown:.1%} in the second half, {GROWTH:.0%} are allowed"
    if run.repeated < REPEATED * run.refused or not run.refused:
        yield f"{run.repeated} of {run.refused} refusals of a plain flood came from the cache, {REPEATED:.0%} should"
    if run.wrong or not run.updates:
        yield f"{run.wrong} of {run.updates} updates were not answered as they should"
    if run.errors:
        yield f"the log has {len(run.errors)} errors, the first is: {run.errors[0]}"


# What Envoy and the filter say of it.
WRONG_DOCUMENT = re.compile(
    r"flowRules\[0\]\.sampleCount: `7` does not divide|Failed to configure base Wasm plugin|Plugin leapgate failed to load"
    r"|Plugin configured to fail closed failed to load")


# ---- the run --------------------------------------------------------------------------------------


class Log:
    """Lines of a log that grows for an hour, looked at once each."""

    def __init__(self, envoy):
        self._file = open(envoy.folder / "envoy.log", errors="replace")
        self.errors = []

    def look(self):
        for line in self._file:
            if re.search(r"\[(error|critical)\]", line) and not WRONG_DOCUMENT.search(line):
                self.errors.append(line.strip())
        del self.errors[100:]

    def close(self):
        self._file.close()


def counter(envoy, name):
    return envoy.stat(f"wasmcustom.leapgate.{name}")


def plain_flood(envoy, seconds):
    """A plain flood, and how many of its refusals came from the cache: (repeated, refused)."""
    before = counter(envoy, "repeated_refusals"), counter(envoy, "blocked;rule=hot")
    with Asking(envoy.port, SOURCES[:1]) as asking:
        time.sleep(seconds)
        asking.check()
    refused = asking.total(429)
    with contextlib.suppress(AssertionError):
        eventually("all refusals are told", lambda: counter(envoy, "blocked;rule=hot") - before[1] >= refused)
    return counter(envoy, "repeated_refusals") - before[0], refused


class Soak:
    def __init__(self, seconds):
        self.seconds = seconds
        self.lowered, self.failing = Periods(), Periods()
        self.limits = [
            Limit("hot", ["hot"], HOT),
            Limit("hot, lowered", ["hot"], HOT / 2, in_force=self.lowered),
            Limit("long, 10 s", ["long"], 10 * HOT, window=10.0),
            Limit("keyed, each key", ["keyed"], KEY),
            Limit("keyed, lowered", ["keyed"], KEY / 2, in_force=self.lowered),
            Limit("flooded, each key", ["flooded"], FLOODED),
            # Turns are exactly a gap apart: one at each end of the second.
            Limit("throttle", ["throttle"], PACE + 1),
            Limit("priority", ["low", "high"], PRIORITY),
            # While its upstream fails, a breaker lets one probe through after each `timeWindow`.
            Limit("breaker, probes", ["breaker"], 1, window=0.99, in_force=self.failing),
        ]
        self.memory = []
        self.updates = self.wrong = self.vms = self.vm = 0
        self.asked = collections.Counter()

    def run(self):
        with contextlib.closing(Behaving()) as upstream:
            routes = [route(name) for name in ("hot", "long", "keyed", "flooded", "throttle", "priority", "calm")]
            with Envoy(document(), [*routes, route("breaker", cluster="up")], workers=4, clusters=[cluster("up", upstream.port)],
                       drain_seconds=DRAIN) as envoy, contextlib.closing(Log(envoy)) as log:
                return self._run(envoy, upstream, log)

    def _run(self, envoy, upstream, log):
        repeated, refused = plain_flood(envoy, min(FLOOD, self.seconds / 6))
        before = {rule: self._counters(envoy, rule) for rule in COUNTED}
        with Asking(envoy.port, SOURCES, self.limits) as asking:
            begin = time.monotonic()
            told = begin
            for number in itertools.count():
                if time.monotonic() >= begin + self.seconds:
                    break
                self._update(envoy, UPDATES[number % len(UPDATES)])
                self._fail(upstream, number // len(UPDATES) % 2 == 1)
                time.sleep(PAUSE)
                asking.check()
                log.look()
                self.memory.append((time.monotonic() - begin, envoy.resident_bytes()))
                if time.monotonic() >= told + 60:
                    told += 60
                    self._tell(time.monotonic() - begin, asking)
            took = time.monotonic() - begin
        if asking.failure:
            raise asking.failure
        counters = self._settled_counters(envoy, asking.counts, before)
        log.look()
        return Run(took, self.vms, self.limits, asking.counts, counters, self.memory, repeated, refused, self.updates, self.wrong, log.errors)

    def _update(self, envoy, update):
        if not update.low:
            self.lowered.end(time.monotonic())
        rules = document(update.low, **update.how)
        if update.wrong:
            rules["flowRules"][0]["sampleCount"] = 7
        self.updates += 1
        self.wrong += envoy.configure(rules, vm_configuration=f"generation {update.vm}") == update.wrong
        if update.vm != self.vm:
            self.vm = update.vm
            self.vms += 1
            # Envoy forgets a metric with the last VM that has it: the new ones get it by a request, while connections drain.
            time.sleep(0.3 * DRAIN)
            for rule in COUNTED:
                self.asked[rule, envoy.get(f"/{rule}", {"x-key": "client-0"})[0]] += 1
        if update is UPDATES[0]:
            # From here on connections drain, and what passed under the old count leaves the window.
            self.lowered.begin(time.monotonic() + DRAIN)

    def _fail(self, upstream, failing):
        status = 500 if failing else 200
        if upstream.status != status:
            self.failing.end(time.monotonic())
            upstream.status = status
            if failing:
                # It opens within a second.
                self.failing.begin(time.monotonic() + 1)

    def _tell(self, at, asking):
        worst = ", ".join(f"{limit.name} {limit.worst}/{limit.count:g}" for limit in self.limits)
        requests = asking.total(*STATUSES)
        print(f"{at / 60:.0f} min: {requests / 1e6:.2f} million requests, {requests / at:.0f} a second; {self.updates} updates; "
              f"{self.memory[-1][1] / 2**20:.1f} MiB; worst intervals: {worst}", flush=True)

    def _counters(self, envoy, rule):
        return counter(envoy, f"passed;rule={rule}"), counter(envoy, f"blocked;rule={rule}")

    def _settled_counters(self, envoy, counts, before):
        """What the counters have counted, once they are no less than the clients have seen."""
        def told(rule):
            own = self.asked[rule, 200], self.asked[rule, 429]
            return tuple(now - then - asked for now, then, asked in zip(self._counters(envoy, rule), before[rule], own))

        def all_told():
            return all(told(rule)[i] >= sum(counts[source][status] for source in COUNTED[rule])
                       for rule in COUNTED for i, status in ((0, 200), (1, 429)))

        with contextlib.suppress(AssertionError):
            eventually("all is told", all_told)
        return {rule: told(rule) for rule in COUNTED}


def show(run):
    requests = sum(counts.total() for counts in run.counts.values())
    refused = sum(counts[429] + counts[503] for counts in run.counts.values())
    lost = sum(counts["lost"] for counts in run.counts.values())
    print()
    table(["limit", "worst interval", "allowed"], [[limit.name, limit.worst, f"{limit.count:g}"] for limit in run.limits])
    table(["source", "requests", "admitted", "refused", "lost"],
          [[source, counts.total(), counts[200] + counts[500], counts[429] + counts[503], counts["lost"]] for source, counts in run.counts.items()])
    megabytes = [size / 2**20 for _, size in run.memory]
    table(["", ""], [
        ["minutes", f"{run.seconds / 60:.1f}"],
        ["requests", requests],
        ["requests a second", f"{requests / run.seconds:.0f}"],
        ["refused", f"{refused / requests:.1%}"],
        ["lost, when a listener is replaced", lost],
        ["updates", run.updates],
        ["MiB at first; at last; at most", f"{megabytes[0]:.1f}; {megabytes[-1]:.1f}; {max(megabytes):.1f}"],
        [f"growth in the second half, at most {GROWTH:.0%}", f"{growth(run.memory):+.2%}"],
        [f"refusals of a plain flood from the cache, at least {REPEATED:.0%}", f"{run.repeated / max(run.refused, 1):.1%}"],
        ["errors in the log", len(run.errors)],
    ])


def main(words):
    try:
        [minutes] = [float(word) for word in words] or [MINUTES]
    except ValueError:
        minutes = 0
    if not minutes > 0:
        sys.exit(f"soak: `{' '.join(words)}` is not a number of minutes: use one above 0, or none for {MINUTES}.")
    if not BENCH.exists():
        sys.exit(f"soak: {BENCH} is missing: ./build.sh soak makes it.")
    # An end from outside ends Envoy and the load, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run = Soak(minutes * 60).run()
    except KeyboardInterrupt:
        sys.exit(130)
    show(run)
    faults = list(judge(run))
    for fault in faults:
        print(f"FAILED: {fault}")
    if not faults:
        print("The soak has passed.")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(sys.argv[1:])
