"""One limit for a whole fleet, and everything that may happen to it: no interval has more admissions than the limit.

The fleet runs, under load, from the first test of a class to its last; each test does something to it. Then the fleet recovers
by itself, and the merged logs are checked.
"""

import time
import unittest

from fleet import Fleet, Over, Rule, over
from harness import eventually

RULES = [Rule("hot", 200, buckets=100), Rule("keyed", 60, keys=("a", "b"))]
WINDOW = 1.0
# Envoy's old listeners, with the old rules, are gone after so many seconds.
DRAIN = 1.0
# No permit lasts longer, with time for the answer that brought it.
LONGEST_LEASE = 0.5
# The machine may be slow.
PATIENCE = 20


def limits(times=1):
    return {rule.name: times * rule.limit for rule in RULES}


class FleetCase(unittest.TestCase):
    WHEN_DOWN = None
    # How many times the limit an interval may hold.
    TIMES = 1

    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet(RULES, cls.WHEN_DOWN)
        cls.addClassCleanup(cls.fleet.close)
        recovered(cls.fleet, time.monotonic())

    def setUp(self):
        self.begin = time.monotonic()

    def run(self, result=None):
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before:
            print(f"\nWhat the parts said in {self.id()}:\n{self.fleet.said()}")

    def recovers(self):
        """Each part admits again, and together they fill their windows; meanwhile and since the test began, no interval is over."""
        recovered(self.fleet, time.monotonic())
        self.assertEqual(self.over(), [])

    def over(self, more=(), **when):
        admitted = [*self.fleet.admitted(), *more]
        return over(admitted, limits(self.TIMES), {name: WINDOW for name in limits()}, **{"since": self.begin, **when})

    def admitted_between(self, begin, end):
        """How many requests were sent and admitted then."""
        return sum(begin <= sample.sent and sample.answered <= end for _, _, sample in self.fleet.admitted())

    def store_is_away(self, seconds):
        """Lets the fleet go on without its store for so long; the number of admissions from when no lease can be left."""
        begin = time.monotonic() + LONGEST_LEASE
        time.sleep(LONGEST_LEASE + seconds)
        return self.admitted_between(begin, time.monotonic())


def recovered(fleet, since):
    """Waits until each part has admitted requests for each of its rules since then, and the fleet as a whole has filled two windows."""

    def missing():
        now = time.monotonic()
        silent = {(name, rule.name) for name, rules, _ in fleet.parts() for rule in rules}
        latest = dict.fromkeys(limits(), 0)
        for name, _, log in fleet.parts():
            for rule, _, sample in log:
                if sample.sent >= since:
                    silent.discard((name, rule))
                    latest[rule] += sample.sent >= max(since, now - 2 * WINDOW)
        few = {(rule.name, latest[rule.name]) for rule in fleet.rules if latest[rule.name] < 0.7 * 2 * rule.limit * max(1, len(rule.keys))}
        return sorted(silent | few)

    end = time.monotonic() + PATIENCE
    while found := missing():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: all parts admit again, and two windows are full; missing are {found}")
        time.sleep(0.1)


class Refuse(FleetCase):
    """Never over the limit, whatever happens."""

    WHEN_DOWN = "refuse"

    def test_a_process_is_killed_and_another_one_comes(self):
        for process in self.fleet.processes[:2]:
            process.kill()
            process.start()
        self.recovers()

    def test_a_process_stands_still_with_permits(self):
        process = self.fleet.processes[0]
        process.suspend()
        time.sleep(1.5 * WINDOW)
        process.resume()
        self.recovers()

    def test_an_envoy_is_killed_and_another_one_comes(self):
        self.fleet.envoys[0].kill()
        self.fleet.envoys[0].start()
        self.recovers()

    def test_webdis_is_killed_and_started(self):
        self.fleet.webdis.kill()
        time.sleep(WINDOW)
        self.fleet.webdis.start()
        self.recovers()

    def test_redis_is_killed_and_starts_empty(self):
        self.fleet.redis.kill()
        self.assertEqual(self.store_is_away(0.5), 0)
        self.fleet.redis.start()
        self.recovers()

    def test_redis_starts_empty_at_once(self):
        self.fleet.redis.restart()
        self.recovers()

    def test_redis_stands_still(self):
        self.fleet.redis.suspend()
        self.assertEqual(self.store_is_away(WINDOW), 0)
        self.fleet.redis.resume()
        self.recovers()

    def test_redis_pauses_its_clients(self):
        self.fleet.redis.command("CLIENT", "PAUSE", 1500, "ALL")
        self.assertEqual(self.store_is_away(0.8), 0)
        self.recovers()

    def test_the_link_delays_all_answers(self):
        self.fleet.link.delay(0.005, 0.08)
        time.sleep(2 * WINDOW)
        self.fleet.link.clear()
        self.recovers()

    def test_the_link_cuts_connections(self):
        self.fleet.link.cut(0.05)
        time.sleep(2 * WINDOW)
        self.fleet.link.clear()
        self.recovers()

    def test_what_the_link_held_arrives_too_late(self):
        self.fleet.link.hold()
        self.assertEqual(self.store_is_away(WINDOW), 0)
        self.fleet.link.clear()
        self.recovers()

    def test_no_interval_is_over_a_smaller_count_a_window_after_the_last_part_has_it(self):
        halves = [rule._replace(limit=rule.limit // 2) for rule in RULES]
        self.fleet.set_limits(halves)
        changed = time.monotonic() + DRAIN
        time.sleep(DRAIN + 3 * WINDOW)
        smaller = {rule.name: rule.limit for rule in halves}
        windows = {name: WINDOW for name in smaller}
        self.assertEqual(over(self.fleet.admitted(), smaller, windows, since=changed + WINDOW), [])
        self.fleet.set_limits(RULES)
        self.recovers()

    def test_a_process_that_counts_by_itself_is_found(self):
        stranger = self.fleet.process("stranger", key_prefix="other:")
        eventually("it admits requests", lambda: len(stranger.admitted()) > 0, 20)
        time.sleep(2 * WINDOW)
        stranger.kill()
        self.recovers()
        found = self.over(more=stranger.admitted())
        self.assertEqual({(name, key) for name, key, *_ in found}, {("keyed", "a"), ("keyed", "b")})


class Local(FleetCase):
    """While the store is away each part goes on by its share: at most twice the limit over a change."""

    WHEN_DOWN = "local"
    TIMES = 2

    def goes_on_alone(self):
        self.assertGreater(self.store_is_away(1.5 * WINDOW), 0)

    def test_redis_is_killed_and_starts_empty(self):
        self.fleet.redis.kill()
        self.goes_on_alone()
        self.fleet.redis.start()
        self.recovers()

    def test_redis_stands_still(self):
        self.fleet.redis.suspend()
        self.goes_on_alone()
        self.fleet.redis.resume()
        self.recovers()

    def test_webdis_is_killed_and_started(self):
        self.fleet.webdis.kill()
        self.goes_on_alone()
        self.fleet.webdis.start()
        self.recovers()

    def test_the_link_holds_everything_and_then_cuts(self):
        self.fleet.link.hold()
        self.goes_on_alone()
        self.fleet.link.clear()
        self.fleet.link.cut(0.05)
        time.sleep(WINDOW)
        self.fleet.link.clear()
        self.recovers()
