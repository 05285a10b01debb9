"""Requests that wait in a real Envoy: paused, and resumed on ticks, each in its own turn."""

import socket
import statistics
import threading
import time

from endings import Client
from harness import EnvoyTest, cluster, eventually, route
from load import Load, Source

COUNT = 40
GAP = 1 / COUNT
# Envoy keeps a tick to some milliseconds (4 if the kernel counts 250 ticks a second); a busy machine sometimes needs some more.
EVEN = 0.02
LATE = 0.06


def throttle(count, **more):
    return {"resource": "slow", "id": "slow", "count": count, "controlBehavior": "throttle", **more}


class Waiting(EnvoyTest):
    def start(self, *rules, workers=1, upstream_seconds=0.0, manager_fields=None, **settings):
        self.upstream_server = self.upstream(upstream_seconds)
        routes = [route("slow", cluster="up"), route("free", cluster="up")]
        document = {"flowRules": list(rules), "envoy": settings}
        return self.envoy(document, routes, workers=workers, clusters=[cluster("up", self.upstream_server.port)],
                          manager_fields=manager_fields)

    def waiting(self, envoy):
        return envoy.stat("wasmcustom.leapgate.waiting")

    def waiting_becomes(self, envoy, count):
        eventually(f"{count} wait", lambda: self.waiting(envoy) == count)

    def open(self, envoy, count, path="/slow"):
        """Requests under way, each on a new connection."""
        opened = [socket.create_connection(("127.0.0.1", envoy.port)) for _ in range(count)]
        for connection in opened:
            self.addCleanup(connection.close)
            connection.send(f"GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n".encode())
        return opened

    def status(self, connection):
        connection.settimeout(10)
        return int(connection.recv(4096)[9:12])


class Throttle(Waiting):
    def is_even(self, workers, seconds=5):
        envoy = self.start(throttle(COUNT), workers=workers)
        source = Source("/slow", connections=64, rate=3 * COUNT)
        begin = time.monotonic()
        with Load(envoy.port, source):
            time.sleep(seconds)
        self.assertEqual(envoy.workers_reached(), workers, "each worker had a connection")
        self.assertEqual(source.lost, 0)
        arrivals = sorted(self.upstream_server.arrivals)
        gaps = sorted(late - early for early, late in zip(arrivals, arrivals[1:]))
        told = {"min": gaps[0], "median": statistics.median(gaps), "p99": gaps[len(gaps) * 99 // 100], "max": gaps[-1],
                "deviation": statistics.pstdev(gaps)}
        shown = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in told.items())
        print(f"\n{workers} workers, {COUNT}/s: {len(arrivals)} arrivals, {shown}")
        # The first request passes at once; requests that had their turns when the load ended arrive after it.
        self.assertLessEqual(len(arrivals), COUNT * (arrivals[-1] - begin + LATE) + 1)
        self.assertGreaterEqual(len(arrivals), 0.95 * COUNT * seconds)
        for first, last in zip(arrivals, arrivals[COUNT:]):
            self.assertGreaterEqual(last - first, COUNT * GAP - LATE, f"{COUNT + 1} within a second")
        even = sum(abs(gap - GAP) <= EVEN for gap in gaps)
        self.assertGreaterEqual(even, 0.95 * len(gaps), shown)
        self.assertLess(abs(told["median"] - GAP), 0.005)
        self.assertEqual(len(source.admitted()), len(arrivals))
        self.assertEqual({sample.status for sample in source.samples}, {200, 429})
        waits = [sample.answered - sample.sent for sample in source.admitted()]
        self.assertLess(max(waits), 0.5 + 5 * LATE, "nobody waits for longer than maxQueueingTimeMs")
        self.waiting_becomes(envoy, 0)
        eventually("the waits are told", lambda: envoy.stat("wasmcustom.leapgate.waited;rule=slow") > 0.9 * len(arrivals))

    def test_requests_arrive_one_by_one_with_one_worker(self):
        self.is_even(1)

    def test_four_workers_keep_one_rate_together(self):
        self.is_even(4)

    def test_four_workers_keep_the_rate_under_overload(self):
        envoy = self.envoy({"flowRules": [throttle(400, maxQueueingTimeMs=100)]}, [route("slow")], workers=4)
        source = Source("/slow", connections=128)
        begin = time.monotonic()
        with Load(envoy.port, source):
            time.sleep(5)
        admitted = sorted(sample.answered for sample in source.admitted())
        print(f"\n400/s, {len(source.samples)} requests: {len(admitted)} passed in {admitted[-1] - begin:.2f} s")
        self.assertGreaterEqual(len(source.samples), 2 * 400 * 5, "that was no overload")
        self.assertLessEqual(len(admitted), 400 * (admitted[-1] - begin) + 1)
        self.assertGreaterEqual(len(admitted), 0.9 * 400 * 5)
        self.assertLessEqual(max(sample.answered - sample.sent for sample in source.admitted()), 0.1 + 3 * LATE)
        self.waiting_becomes(envoy, 0)

    def test_requests_that_pass_at_once_are_not_paused(self):
        envoy = self.start(throttle(COUNT))
        for _ in range(5):
            self.assertEqual(envoy.get("/slow")[0], 200)
            time.sleep(0.05)
        self.assertEqual(self.waiting(envoy), 0)
        self.assertEqual(envoy.stat("wasmcustom.leapgate.waited;rule=slow"), 0)

    def test_a_body_waits_with_its_request(self):
        envoy = self.start(throttle(2))
        body = bytes(range(256)) * 256
        self.assertEqual([envoy.get("/slow", body=body)[0] for _ in range(2)], [200, 200])
        self.assertEqual(self.upstream_server.bodies, [body, body])
        first, second = self.upstream_server.arrivals
        self.assertGreaterEqual(second - first, 0.48)

    def test_a_request_that_has_waited_gets_the_limit_headers(self):
        envoy = self.start(throttle(5), rateLimitHeadersOn="all")
        envoy.get("/slow")
        begin = time.monotonic()
        status, headers, _ = envoy.get("/slow")
        self.assertGreater(time.monotonic() - begin, 0.1)
        self.assertEqual((status, headers["ratelimit-policy"]), (200, '"slow";q=5;w=1'))

    def test_beyond_the_bound_requests_are_refused(self):
        envoy = self.start(throttle(1, maxQueueingTimeMs=60_000), maxWaiting=3)
        opened = self.open(envoy, 1)
        self.assertEqual(self.status(opened[0]), 200)
        waiting = self.open(envoy, 3)
        self.waiting_becomes(envoy, 3)
        status, headers, _ = envoy.get("/slow")
        self.assertEqual((status, headers["retry-after"]), (429, "4"))
        self.assertEqual([self.status(connection) for connection in waiting], [200] * 3)
        self.waiting_becomes(envoy, 0)

    def test_a_client_that_leaves_gives_its_turn_back(self):
        envoy = self.start(throttle(1, maxQueueingTimeMs=60_000))
        begin = time.monotonic()
        self.assertEqual(envoy.get("/slow")[0], 200)
        [leaving] = self.open(envoy, 1)
        self.waiting_becomes(envoy, 1)
        leaving.close()
        self.waiting_becomes(envoy, 0)
        self.assertEqual(envoy.get("/slow")[0], 200)
        self.assertLess(time.monotonic() - begin, 1.5, "the turn after the one that was given back")
        self.assertEqual(len(self.upstream_server.arrivals), 2)

    def test_a_wait_ends_where_envoy_ends_the_stream(self):
        for limit in ({"stream_idle_timeout": "0.5s"}, {"common_http_protocol_options": {"max_stream_duration": "0.5s"}}):
            with self.subTest(limit):
                envoy = self.start(throttle(1, maxQueueingTimeMs=60_000), manager_fields=limit)
                self.assertEqual(envoy.get("/slow")[0], 200)
                begin = time.monotonic()
                whole, in_part = self.open(envoy, 1)[0], Client(envoy.port, "/slow", "content-length: 5\r\n").socket
                self.addCleanup(in_part.close)
                self.assertEqual([self.status(connection) for connection in (whole, in_part)], [504, 408])
                self.assertLess(time.monotonic() - begin, 0.9)
                self.waiting_becomes(envoy, 0)
                self.assertEqual(len(self.upstream_server.arrivals), 1)

    def test_waiting_requests_go_on_when_the_rules_are_replaced(self):
        # Envoy lets the connections of the old listener drain for a second.
        envoy = self.start(throttle(6, maxQueueingTimeMs=60_000))
        opened = self.open(envoy, 6)
        self.waiting_becomes(envoy, 5)
        self.assertTrue(envoy.configure({"flowRules": [throttle(1000)]}))
        self.assertEqual([self.status(connection) for connection in opened], [200] * 6)
        arrivals = self.upstream_server.arrivals
        self.assertGreaterEqual(arrivals[-1] - arrivals[0], 5 / 6 - LATE)
        self.waiting_becomes(envoy, 0)

    def test_in_shadow_mode_no_request_waits(self):
        envoy = self.start(throttle(1, mode="shadow"))
        begin = time.monotonic()
        self.assertEqual({envoy.get("/slow")[0] for _ in range(20)}, {200})
        self.assertLess(time.monotonic() - begin, 0.9)
        eventually("what would have been is told",
                   lambda: envoy.stat("wasmcustom.leapgate.shadow_blocked;rule=slow") == 19)


class Prioritized(Waiting):
    HIGH = {"x-priority": "high"}

    def start(self, **how):
        rule = {"resource": "slow", "id": "slow", "count": 20, "sampleCount": 10}
        return super().start(rule, prioritized={"header": "x-priority", "value": "high"}, **how)

    def test_a_prioritized_request_waits_where_others_are_refused(self):
        envoy = self.start(workers=4)
        begin = time.monotonic()
        self.assertEqual([envoy.get("/slow")[0] for _ in range(21)], [200] * 20 + [429])
        time.sleep(max(0, begin + 0.95 - time.monotonic()))
        self.assertEqual(envoy.get("/slow", {"x-priority": "low"})[0], 429)
        answers, waits = [], []

        def ask():
            sent = time.monotonic()
            answers.append(envoy.get("/slow", self.HIGH)[0])
            waits.append(time.monotonic() - sent)

        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [200] * 10)
        self.assertGreater(min(waits), 0.05)
        self.assertLess(max(waits), 0.5 + 5 * LATE)
        # Loans count for all workers; how much of the rest is free by now depends on the clock.
        self.assertLessEqual([envoy.get("/slow")[0] for _ in range(20)].count(200), 10)
        self.waiting_becomes(envoy, 0)

    def test_never_more_than_the_limit_however_many_borrow(self):
        envoy = self.start(workers=4)
        low = Source("/slow", connections=16, rate=100)
        high = Source("/slow", connections=32, rate=50, headers="x-priority: high\r\n")
        with Load(envoy.port, low, high):
            time.sleep(6)
        arrivals = sorted(self.upstream_server.arrivals)
        self.assertGreater(envoy.stat("wasmcustom.leapgate.waited;rule=slow"), 30)
        for first, last in zip(arrivals, arrivals[20:]):
            self.assertGreaterEqual(last - first, 1 - LATE, "21 within a second")
        self.assertGreaterEqual(len(arrivals), 0.8 * 20 * 6)


class WarmUp(Waiting):
    def test_a_cold_start_admits_a_third_over_all_workers(self):
        rule = {"resource": "slow", "id": "slow", "count": 90, "controlBehavior": "warmUp"}
        envoy = self.start(rule, workers=4)
        source = Source("/slow", connections=32, rate=400)
        begin = time.monotonic()
        with Load(envoy.port, source):
            time.sleep(15)
        admitted = [sample.answered - begin for sample in source.admitted()]
        by_second = [sum(second <= at < second + 1 for at in admitted) for second in range(15)]
        print(f"\nwarming up to 90/s: {by_second}")
        self.assertLessEqual(by_second[0], 32)
        self.assertGreaterEqual(by_second[0], 25)
        self.assertGreaterEqual(by_second[14], 80)
        self.assertLessEqual(max(by_second), 92)


class Relation(Waiting):
    def test_a_route_gives_way_to_another_in_all_workers(self):
        rule = {"resource": "free", "id": "polite", "count": 5, "intervalMs": 60_000, "strategy": "relate", "refResource": "slow"}
        envoy = self.start(rule, workers=4)
        self.assertEqual({envoy.get("/free")[0] for _ in range(12)}, {200}, "nobody is in the way")
        self.assertEqual({envoy.get("/slow")[0] for _ in range(12)}, {200}, "the other is not limited")
        self.assertEqual({envoy.get("/free")[0] for _ in range(12)}, {429})


class Origins(Waiting):
    def test_each_origin_has_its_limit(self):
        rules = [{"resource": "slow", "id": "shop", "count": 3, "intervalMs": 60_000, "limitApp": "shop"},
                 {"resource": "slow", "id": "other", "count": 2, "intervalMs": 60_000, "limitApp": "other"}]
        envoy = self.start(*rules, workers=4, origin={"header": "x-app"})
        for origin, limit in [("shop", 3), ("a", 2), ("b", 2)]:
            statuses = [envoy.get("/slow", {"x-app": origin})[0] for _ in range(8)]
            self.assertEqual(statuses, [200] * limit + [429] * (8 - limit), origin)
        self.assertEqual({envoy.get("/slow")[0] for _ in range(8)}, {200}, "from nowhere in particular")

    def test_an_origin_on_the_black_list_is_forbidden(self):
        authority = [{"resource": "slow", "limitApp": "mallory,eve", "strategy": "black"},
                     {"resource": "free", "limitApp": "mallory", "strategy": "black", "mode": "shadow"}]
        upstream = self.upstream(0.0)
        document = {"authorityRules": authority, "envoy": {"origin": {"header": "x-app"}}}
        envoy = self.envoy(document, [route("slow", cluster="up"), route("free", cluster="up")],
                           clusters=[cluster("up", upstream.port)], access_log=True)
        self.assertEqual([envoy.get("/slow", {"x-app": origin})[0] for origin in ("mallory", "eve", "alice")], [403, 403, 200])
        self.assertEqual([envoy.get("/slow")[0], envoy.get("/free", {"x-app": "mallory"})[0]], [200, 200])
        eventually("the access log says why", lambda: "/slow 403 leapgate{rule=slow/black}" in envoy.access_log.read_text())
