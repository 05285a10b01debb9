"""The judge of the soak, without an Envoy: a judge that sees nothing would accept an hour of anything."""

import collections
import random
import subprocess
import sys
import unittest

import soak
from harness import ROOT
from load import Sample, most_in_any_window
from soak import Limit, Periods, Run, WorstInterval
from test_load import drawn


def stream(judge, samples, lateness, every=3):
    """Gives samples in the order of their answers, and tells now and then up to where they have come."""
    for number, sample in enumerate(sorted(samples, key=lambda sample: sample.answered)):
        judge.add(sample)
        if number % every == 0:
            judge.settle(sample.answered - lateness)


class Worst(unittest.TestCase):
    def test_it_agrees_with_the_judge_that_has_all_samples(self):
        draw = random.Random(1)
        for _ in range(500):
            samples = drawn(draw, 60, 40)
            for window in (1, 5, 10):
                judge = WorstInterval(window)
                stream(judge, samples, lateness=draw.randrange(1, 20))
                judge.settle()
                self.assertEqual(judge.worst, most_in_any_window(samples, window), (samples, window))

    def test_samples_may_come_in_another_order_than_their_answers(self):
        judge = WorstInterval(1.0)
        for answered in (3.0, 2.5, 2.9, 2.6):
            judge.add(Sample(answered - 0.1, answered, 200))
        judge.settle(3.0)
        self.assertEqual(judge.worst, 0, "requests may come that belong to these intervals")
        judge.settle(4.0)
        self.assertEqual(judge.worst, 4)

    def test_a_sample_that_comes_too_late_is_an_error(self):
        judge = WorstInterval(1.0)
        judge.settle(5.0)
        with self.assertRaisesRegex(ValueError, "an answer of 4.9 came when all until 5.0 had come"):
            judge.add(Sample(4.8, 4.9, 200))

    def test_it_sees_one_request_too_many_in_an_hour_and_keeps_a_window_of_them(self):
        judge = WorstInterval(1.0)
        for i in range(360_000):
            judge.add(Sample(i * 0.0101, i * 0.0101 + 0.001, 200))
            if i % 100 == 0:
                judge.settle(i * 0.0101)
                self.assertLess(len(judge._sent) + len(judge._answered), 500)
            if i == 200_000:
                self.assertEqual(judge.worst, 99)
                judge.add(Sample(2020.003, 2020.004, 200))
                judge.add(Sample(2020.005, 2020.006, 200))
        judge.settle()
        self.assertEqual(judge.worst, 101)


class Limits(unittest.TestCase):
    def test_each_key_has_its_own_and_those_without_requests_are_forgotten(self):
        limit = Limit("keyed", ["keyed"], 3)
        for second in range(100):
            for key in (1, 1000 + second):
                for i in range(2 if key == 1 else 3):
                    limit.add(key, Sample(second + i / 10, second + i / 10 + 0.01, 200))
            limit.settle(second + 0.9)
        self.assertLess(len(limit._judges), 6)
        limit.settle()
        self.assertEqual((limit.worst, len(limit._judges)), (3, 0))

    def test_only_requests_within_a_period_count(self):
        periods = Periods(margin=1.0)
        limit = Limit("lowered", ["hot"], 5, in_force=periods)
        periods.begin(10.0)
        rows = [(10.5, 10.9, False), (11.0, 11.1, True), (14.0, 14.1, True)]
        for sent, answered, _ in rows:
            limit.add(0, Sample(sent, answered, 200))
        periods.end(15.0)
        # What ends after the end less the margin may come before it is known, and after.
        later = [(13.9, 14.0, True), (13.9, 14.1, False), (20.0, 20.1, False)]
        for sent, answered, inside in rows[:2] + later:
            self.assertEqual(periods.contain(Sample(sent, answered, 200)), inside, (sent, answered))
        limit.settle()
        self.assertEqual(limit.worst, 1)


class Memory(unittest.TestCase):
    def test_growth_is_of_the_line_through_the_second_half(self):
        draw = random.Random(2)
        flat = [(i, 100 + draw.uniform(-5, 5)) for i in range(600)]
        filling = [(i, min(100, i)) for i in range(600)]
        leaking = [(i, 100 + i / 30 + draw.uniform(-5, 5)) for i in range(600)]
        for points, least, most in ((flat, -0.01, 0.01), (filling, 0, 0), (leaking, 0.08, 0.1)):
            grown = soak.growth(points)
            self.assertTrue(least <= grown <= most, grown)


class Judge(unittest.TestCase):
    """A soak that has passed, and each way to fail."""

    def run_of(self, counts=None, counters=None, worst=None, **other):
        limits = [Limit("hot", ["hot"], 200), Limit("breaker, probes", ["breaker"], 1)]
        for limit in limits:
            limit._worst = (worst or {}).get(limit.name, limit.count)
        answers = {"hot": {200: 1000, 429: 9000, "lost": 2}, "calm": {200: 100}, "breaker": {200: 50, 500: 10, 503: 70}, "new": {200: 5}}
        answers |= {name: {200: 1000, 429: 500} for name in ("long", "keyed", "flooded", "throttle", "low", "high")}
        answers |= counts or {}
        said = {"hot": (1001, 9001), "calm": (100, 0), "flooded": (1005, 500), "priority": (2000, 1000)}
        said |= {name: (1000, 500) for name in ("long", "keyed", "throttle")}
        fields = {"seconds": 100.0, "vms": 0, "limits": limits, "counts": {name: collections.Counter(of) for name, of in answers.items()},
                  "counters": {**said, **(counters or {})}, "memory": [(i, 1e8) for i in range(100)], "repeated": 90, "refused": 100,
                  "updates": 10, "wrong": 0, "errors": []}
        return Run(**{**fields, **other})

    def test_a_soak_without_a_fault_passes(self):
        self.assertEqual(list(soak.judge(self.run_of())), [])

    def test_each_fault_is_found_and_told(self):
        rows = [
            ({"worst": {"hot": 201}}, "hot: 201 requests in an interval, the limit is 200"),
            ({"worst": {"hot": 99}}, "hot: at most 99 requests in an interval: that is no test of a limit of 200"),
            ({"worst": {"breaker, probes": 2}}, "breaker, probes: 2 requests in an interval, the limit is 1"),
            ({"counters": {"hot": (999, 9000)}}, "the counter `passed` of hot is 999, clients have seen 1000 and lost 2"),
            ({"counters": {"hot": (1000, 9003)}}, "the counter `blocked` of hot is 9003, clients have seen 9000 and lost 2"),
            ({"counters": {"hot": (900, 9000)}, "vms": 5}, "the counter `passed` of hot is 900, clients have seen 1000 and lost 2"),
            ({"counts": {"calm": {200: 100, 429: 1}}, "counters": {"calm": (100, 1)}}, "calm had other answers: {429: 1}"),
            ({"counts": {"new": {503: 5}}, "counters": {"flooded": (1000, 500)}},
             "new had other answers: {503: 5}|new had no request admitted"),
            ({"counts": {"hot": {200: 1000, 429: 9000, "lost": 1001}}}, "1001 of 20236 requests have no answer, in 10 updates"),
            ({"memory": [(i, 1e8 + 2e5 * i) for i in range(100)]}, "memory grew by 8.5% in the second half, 3% are allowed"),
            ({"repeated": 49}, "49 of 100 refusals of a plain flood came from the cache, 50% should"),
            ({"repeated": 0, "refused": 0}, "0 of 0 refusals of a plain flood came from the cache, 50% should"),
            ({"wrong": 1}, "1 of 10 updates were not answered as they should"),
            ({"errors": ["[error] one", "[error] two"]}, "the log has 2 errors, the first is: [error] one"),
        ]
        for fault, told in rows:
            with self.subTest(told):
                self.assertEqual("|".join(soak.judge(self.run_of(**fault))), told)

    def test_what_a_replaced_vm_has_not_exported_is_no_fault(self):
        self.assertEqual(list(soak.judge(self.run_of(counters={"hot": (990, 8910)}, vms=5))), [])


class Command(unittest.TestCase):
    def test_a_wrong_duration_is_named(self):
        for words, told in ((["long"], "`long`"), (["0"], "`0`"), (["nan"], "`nan`"), (["1", "2"], "`1 2`")):
            done = subprocess.run([sys.executable, ROOT / "tests" / "envoy" / "soak.py", *words], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, f"soak: {told} is not a number of minutes: use one above 0, or none for 60.\n"))


if __name__ == "__main__":
    unittest.main()
