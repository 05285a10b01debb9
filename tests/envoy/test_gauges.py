"""Gauges that an operator's `stats_matcher` excludes, one at a time: each is found, the log names it, and limits hold."""

import time

from endings import Behaving, metric
from harness import EnvoyTest, cluster, eventually, route
from load import Load, Source, most_in_any_window

LIMIT = 100
IN_SHARED_DATA = ("what it counts stands in shared data, changed by compare-and-swap, and requests are refused where that is "
                  "contended")
EACH_LOOKS_UP = "each request to its resource reads the state of the breaker from shared data"
PAY = {"id": "pay", "resource": "pay", "grade": "errorRatio", "count": 0.5, "timeWindow": 60, "minRequestAmount": 4,
       "statIntervalMs": 10_000}


class Gauges(EnvoyTest):
    def start(self, rules, excluded=None, slow_port=None):
        self.behaving = Behaving()
        self.addCleanup(self.behaving.close)
        config = excluded and {"stats_matcher": {"exclusion_list": {"patterns": [{"contains": excluded}]}}}
        routes = [route("hot"), route("slow", cluster="slow"), route("pay", cluster="up")]
        clusters = [cluster("up", self.behaving.port), cluster("slow", slow_port or self.behaving.port)]
        return self.envoy(rules, routes, workers=4, clusters=clusters, stats_config=config)

    def log_names(self, running, gauge, now):
        running.wait_for_log(f"leapgate: the gauge `wasmcustom.{gauge}` does not count (does a stats_matcher exclude it?): {now}")

    def holds(self, rules, excluded, gauge):
        running, hot = self.start(rules, excluded), Source("/hot", connections=32)
        with Load(running.port, hot):
            time.sleep(3)
        self.log_names(running, gauge, IN_SHARED_DATA)
        self.assertEqual(running.workers_reached(), 4)
        self.assertLessEqual(most_in_any_window(hot.admitted(), 1.0), LIMIT)
        self.assertGreaterEqual(len(hot.admitted()), 2 * LIMIT)

    def test_whichever_gauge_of_a_window_is_silent_the_limit_holds(self):
        for what in ("tickets", "admitted"):
            with self.subTest(what):
                rules = {"flowRules": [{"resource": "hot", "count": LIMIT}]}
                self.holds(rules, f"leapgate.{what};", f"leapgate.{what};rule=hot;window=1000ms_100")

    def test_whichever_gauge_of_the_systems_passes_is_silent_the_limit_holds(self):
        for what in ("tickets", "admitted"):
            with self.subTest(what):
                self.holds({"systemRules": [{"qps": LIMIT}]}, f"passes_{what}", f"leapgate.inbound_passes_{what}")

    def test_where_gauges_of_calls_in_flight_are_silent_the_limits_hold(self):
        for rules, gauge in (
            ({"flowRules": [{"resource": "slow", "count": 8, "grade": "concurrency"}]}, "leapgate.in_flight;rule=slow/concurrency;;2f"),
            ({"systemRules": [{"maxThread": 8}]}, "leapgate.inbound_in_flight"),
        ):
            with self.subTest(gauge):
                upstream = self.upstream(0.02)
                running, source = self.start(rules, "in_flight", upstream.port), Source("/slow", connections=32)
                with Load(running.port, source):
                    time.sleep(2)
                self.log_names(running, gauge, IN_SHARED_DATA)
                self.assertEqual(running.workers_reached(), 4)
                self.assertEqual({sample.status for sample in source.samples}, {200, 503 if "inbound" in gauge else 429})
                self.assertEqual(upstream.most, 8)
                self.assertEqual({running.get("/slow")[0] for _ in range(20)}, {200}, "all places are free again")

    def test_whichever_gauge_of_response_times_is_silent_slow_responses_close_the_door(self):
        for what in ("completed", "response_ms"):
            with self.subTest(what):
                running = self.start({"systemRules": [{"avgRt": 50}]}, f"inbound_{what}")
                self.log_names(running, f"leapgate.inbound_{what}", IN_SHARED_DATA)
                self.behaving.seconds = 0.5
                self.assertEqual(running.get("/slow")[0], 200)
                self.assertEqual([running.get("/hot")[0] for _ in range(8)], [503] * 8)
                eventually("it is forgotten", lambda: running.get("/hot")[0] == 200, 2)

    def opens(self, running):
        self.behaving.status = 500
        eventually("it opens", lambda: "retry-after" in running.get("/pay")[1])

    def passes(self, running, times):
        """How many requests pass a breaker, each on a new connection."""
        return sum("retry-after" not in running.get("/pay")[1] for _ in range(times))

    def test_whichever_gauge_of_a_breaker_is_silent_none_passes_while_it_is_open(self):
        exact = "rule=pay;resource=pay;window=errorRatio_10000ms_10"
        for what, now in (("completed", IN_SHARED_DATA), ("bad", IN_SHARED_DATA), ("changes", EACH_LOOKS_UP), ("state", None)):
            with self.subTest(what):
                running = self.start({"degradeRules": [PAY]}, f"breaker_{what};")
                if now:
                    self.log_names(running, f"leapgate.breaker_{what};{exact}", now)
                self.opens(running)
                asked = self.behaving.requests
                self.assertEqual(self.passes(running, 200), 0)
                self.assertEqual(self.behaving.requests, asked)
                self.assertEqual(running.workers_reached(), 4)

    def test_a_breaker_whose_window_is_changed_and_changed_back_stays_open_and_shows_it(self):
        running = self.start({"degradeRules": [PAY]})
        self.opens(running)
        shown = lambda: metric(running, "breaker_state;rule=pay")
        self.assertEqual(shown(), 1)
        self.assertTrue(running.configure({"degradeRules": [{**PAY, "statIntervalMs": 20_000}]}))
        self.assertEqual(shown(), 0)
        self.behaving.status = 200
        self.assertEqual(self.passes(running, 20), 20, "another window begins closed")
        self.assertTrue(running.configure({"degradeRules": [PAY]}))
        # The old listener drains for a second, and the new one gets requests at once.
        self.assertEqual(self.passes(running, 300), 0)
        self.assertEqual(shown(), 1)
        self.assertEqual(running.workers_reached(), 4)

    def test_a_rule_that_reads_like_another_one_does_not_close_its_breaker(self):
        running = self.start({"degradeRules": [{**PAY, "id": "a.b"}]})
        self.opens(running)
        self.behaving.status = 200
        alike = [{**PAY, "id": name, "resource": "slow"} for name in ("a_b", "a/b")]
        self.assertTrue(running.configure({"degradeRules": [{**PAY, "id": "a.b"}, *alike]}))
        self.assertEqual(self.passes(running, 300), 0)
        self.assertEqual({running.get("/slow")[0] for _ in range(20)}, {200})
