"""A flood of refused requests is answered from each worker's memory: within the limit, with times that are true, and counted."""

import bisect
import time

from harness import EnvoyTest, eventually, route
from load import Load, Sample, Source, most_in_any_window

WINDOW, LIMIT = 4.0, 200
WINDOWS = 3
# For so long is a refusal repeated at most, in seconds.
LONGEST = 1.0
# By how much the views of two workers may differ, in seconds, beside the time for which the machine keeps one of them waiting.
SLACK = 0.5


class Flood(EnvoyTest):
    def holds(self, rule, headers=""):
        rule = {"resource": "api", "id": "hot", "count": LIMIT, "intervalMs": int(WINDOW * 1000), **rule}
        envoy = self.envoy({"flowRules": [rule]}, [route("api")], workers=4)
        flood = Source("/api", connections=32, headers=headers)
        polled, names = [], dict(line.split(": ") for line in headers.splitlines())
        begin = time.monotonic()
        with Load(envoy.port, flood):
            while time.monotonic() < begin + WINDOWS * WINDOW + 1:
                sent = time.monotonic()
                status, told, _ = envoy.get("/api", names)
                polled.append((Sample(sent, time.monotonic(), status), told))
                time.sleep(0.03)
        self.assertEqual(flood.lost, 0)
        self.assertEqual(envoy.workers_reached(), 4, "each worker had a connection")
        # All requests compete: the pass that a refusal announces may be that of a polling request.
        passes = sorted(flood.admitted() + [sample for sample, _ in polled if sample.status == 200])
        passed = len(passes)
        self.assertLessEqual(most_in_any_window(passes, WINDOW), LIMIT)
        # In strict windows the last of each limit passes a bucket after the window.
        self.assertGreaterEqual(passed, 0.95 * LIMIT * WINDOWS)
        self.assertGreaterEqual(len(flood.samples), 10 * passed, "that was no overload")

        # The decision lies between the request and the answer, or, if it is repeated, up to `LONGEST` before the request: another worker may
        # have passed meanwhile what this one had told of.
        by_answer = sorted(sample.answered for sample in passes)
        slack = SLACK + max(sample.answered - sample.sent for sample in [*flood.samples, *(sample for sample, _ in polled)])
        checked = 0
        for (sent, answered, status), told in polled:
            first, surely = bisect.bisect(by_answer, sent - LONGEST), bisect.bisect(passes, (answered,))
            if status == 200 or surely == passed:
                continue
            retry = int(told["retry-after"])
            self.assertEqual(told["ratelimit"], f'"hot";r=0;t={retry}')
            self.assertLessEqual(by_answer[first] - answered, retry + slack, "a request passed no sooner")
            self.assertGreaterEqual(passes[surely].answered - sent, retry - 1 - slack, "a request passed too soon")
            checked += 1
        self.assertGreater(checked, 50)

        refused = len(flood.samples) - len(flood.admitted()) + sum(sample.status == 429 for sample, _ in polled)
        counter = lambda name: envoy.stat(f"wasmcustom.leapgate.{name}")  # noqa: E731
        eventually("all refusals are counted", lambda: counter("blocked;rule=hot") == refused)
        self.assertEqual(counter("passed;rule=hot"), passed)
        self.assertGreaterEqual(counter("repeated_refusals"), 0.9 * refused)

    def test_of_a_route_is_within_the_limit_and_told_the_truth(self):
        self.holds({})

    def test_of_a_client_is_within_the_limit_and_told_the_truth(self):
        self.holds({"key": [{"header": "x-api-key"}]}, "x-api-key: greedy\r\n")
