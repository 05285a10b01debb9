"""The promise itself, under overload: the requests that a client saw admitted are compared with the limit in every interval."""

import http.client
import socket
import time

from harness import EnvoyTest, cluster, eventually, free_port, route
from load import Load, Source, most_in_any_window

SECONDS = 10
LIMIT = 200


class Window(EnvoyTest):
    def overload(self, workers, rules, seconds=SECONDS, **how):
        """Ten windows of overload on one route, a trickle on another; returns the Envoy and both sources."""
        envoy = self.envoy(rules, [route("hot"), route("calm")], workers=workers, **how)
        hot, calm = Source("/hot", connections=32), Source("/calm", connections=4, rate=20)
        with Load(envoy.port, hot, calm):
            time.sleep(seconds)
        self.assertEqual(envoy.workers_reached(), workers, "each worker had a connection")
        self.assertEqual(hot.lost + calm.lost, 0)
        self.assertGreaterEqual(len(hot.samples), 5 * LIMIT * seconds, "that was no overload")
        return envoy, hot, calm

    def holds(self, workers):
        rules = {"flowRules": [{"resource": "hot", "count": LIMIT}, {"resource": "calm", "count": 100}]}
        envoy, hot, calm = self.overload(workers, rules)
        self.assertLessEqual(most_in_any_window(hot.admitted(), 1.0), LIMIT)
        self.assertGreaterEqual(len(hot.admitted()), 0.95 * LIMIT * SECONDS)
        self.assertEqual({sample.status for sample in hot.samples}, {200, 429})
        self.assertGreaterEqual(len(calm.samples), 0.9 * 20 * SECONDS)
        self.assertEqual({sample.status for sample in calm.samples}, {200}, "the calm route was disturbed")
        # The workers have released all tickets that they took while they raced.
        gauges = {name: envoy.stat(f"wasmcustom.leapgate.{name};rule=hot;window=1000ms_100") for name in ("tickets", "admitted")}
        self.assertEqual(gauges, {name: len(hot.admitted()) for name in gauges})

    def test_never_more_than_the_limit_with_one_worker(self):
        self.holds(1)

    def test_never_more_than_the_limit_with_two_workers(self):
        self.holds(2)

    def test_never_more_than_the_limit_with_four_workers(self):
        self.holds(4)

    def test_star_gives_every_route_a_window_of_its_own(self):
        _, hot, calm = self.overload(4, {"flowRules": [{"resource": "*", "count": LIMIT}]}, seconds=3)
        self.assertLessEqual(most_in_any_window(hot.admitted(), 1.0), LIMIT)
        self.assertGreaterEqual(len(hot.admitted()), 0.95 * LIMIT * 3)
        self.assertEqual({sample.status for sample in calm.samples}, {200})

    def test_without_gauges_the_limit_still_holds_and_the_log_says_what_changed(self):
        rules = {"flowRules": [{"resource": "hot", "count": LIMIT}]}
        silenced = {"stats_matcher": {"exclusion_list": {"patterns": [{"prefix": "wasmcustom"}]}}}
        envoy, hot, _ = self.overload(4, rules, seconds=5, stats_config=silenced)
        self.assertLessEqual(most_in_any_window(hot.admitted(), 1.0), LIMIT)
        self.assertGreaterEqual(len(hot.admitted()), 0.8 * LIMIT * 5)
        self.assertIn("shared data", envoy.log())


class Late(EnvoyTest):
    """A rule is opened in a worker by the first request that asks for its resource there."""

    def test_a_worker_that_is_first_asked_while_others_have_a_limit_full_refuses(self):
        rules = {"flowRules": [{"resource": name, "count": 5, "intervalMs": 60_000} for name in ("now", "later")]}
        envoy = self.envoy(rules, [route("now"), route("later")], workers=4)
        connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=10)
        self.addCleanup(connection.close)

        def ask(path):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            return response.status

        # All on one connection, and so in one worker, which has published nothing yet when others are asked, or all.
        for path, rest in (("/now", 0), ("/later", 1)):
            self.assertEqual([ask(path) for _ in range(6)], [200] * 5 + [429])
            time.sleep(rest)
            self.assertEqual({envoy.get(path)[0] for _ in range(50)}, {429})
        self.assertEqual(envoy.workers_reached(), 4)
        names = ("tickets", "admitted")
        self.assertEqual([envoy.stat(f"wasmcustom.leapgate.{name};rule=now/60s;;2f;window=60000ms_100") for name in names], [5, 5])


class Concurrency(EnvoyTest):
    COUNT = 8

    def start(self, upstream_port, workers=4):
        rules = {"flowRules": [{"resource": "slow", "count": self.COUNT, "grade": "concurrency"}]}
        return self.envoy(rules, [route("slow", cluster="up")], workers=workers, clusters=[cluster("up", upstream_port)])

    def in_flight_becomes(self, envoy, count):
        name = "wasmcustom.leapgate.in_flight;rule=slow/concurrency;;2f"
        eventually(f"{name} is {count}", lambda: envoy.stats().get(name) == count)

    def test_never_more_than_count_at_the_upstream(self):
        upstream = self.upstream(0.02)
        envoy = self.start(upstream.port)
        source = Source("/slow", connections=64)
        with Load(envoy.port, source):
            time.sleep(3)
        self.assertEqual(envoy.workers_reached(), 4)
        self.assertEqual(upstream.most, self.COUNT)
        self.assertEqual({sample.status for sample in source.samples}, {200, 429})
        self.in_flight_becomes(envoy, 0)

    def test_a_client_that_leaves_gives_its_place_back(self):
        upstream = self.upstream(3)
        envoy = self.start(upstream.port)
        leaving = [socket.create_connection(("127.0.0.1", envoy.port)) for _ in range(self.COUNT)]
        for connection in leaving:
            connection.send(b"GET /slow HTTP/1.1\r\nhost: shop\r\n\r\n")
        self.in_flight_becomes(envoy, self.COUNT)
        self.assertEqual(envoy.get("/slow")[0], 429)
        for connection in leaving:
            connection.close()
        self.in_flight_becomes(envoy, 0)
        self.assertEqual(envoy.get("/slow")[0], 200)

    def test_an_upstream_that_is_gone_keeps_no_place(self):
        envoy = self.start(free_port())
        self.assertEqual({envoy.get("/slow")[0] for _ in range(3 * self.COUNT)}, {503})
        self.in_flight_becomes(envoy, 0)
