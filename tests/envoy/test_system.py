"""System rules: over all routes and all workers together."""

import time

from endings import Behaving, Client, metric
from harness import EnvoyTest, cluster, eventually, route
from load import Load, Source, most_in_any_window


class System(EnvoyTest):
    def running(self, rule, workers=4):
        self.upstream = Behaving()
        self.addCleanup(self.upstream.close)
        routes = [route("a"), route("b"), route("slow", cluster="slow")]
        return self.envoy({"systemRules": [rule]}, routes, workers=workers,
                          clusters=[cluster("slow", self.upstream.port)], access_log=True)

    def test_no_second_holds_more_passes_than_the_system_bears(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                running = self.running({"qps": 200}, workers)
                sources = [Source("/a"), Source("/b")]
                with Load(running.port, *sources):
                    time.sleep(2.5)
                samples = [sample for source in sources for sample in source.admitted()]
                self.assertEqual(sum(source.lost for source in sources), 0)
                self.assertLessEqual(most_in_any_window(samples, 1), 200)
                self.assertGreaterEqual(len(samples), 400)
                refused = sum(len(source.samples) for source in sources) - len(samples)
                eventually("refusals are told", lambda: metric(running, "system_blocked;rule=system/qps;;2f") == refused)
                self.assertIn("leapgate{rule=system/qps}", running.access_log.read_text())

    def test_calls_in_flight_are_limited_over_all_routes(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                running = self.running({"maxThread": 4}, workers)
                clients = [Client(running.port, "/slow/hang") for _ in range(12)]
                eventually("four are in flight", lambda: metric(running, "inbound_in_flight") == 4)
                self.assertEqual({running.get(path)[0] for path in ("/a", "/b", "/slow") * 4}, {503})
                eventually("they are all there", lambda: self.upstream.requests == 4)
                for client in clients:
                    client.leave()
                eventually("all have left", lambda: metric(running, "inbound_in_flight") == 0)
                self.assertEqual(running.get("/a")[0], 200)

    def test_slow_responses_close_the_door_for_a_second(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                running = self.running({"avgRt": 50}, workers)
                self.assertEqual({running.get("/slow")[0] for _ in range(4)}, {200})
                self.upstream.seconds = 0.5
                self.assertEqual(running.get("/slow")[0], 200)
                self.assertEqual([running.get(path)[0] for path in ("/a", "/b") * 4], [503] * 8)
                eventually("it is forgotten", lambda: running.get("/a")[0] == 200, 2)

    def test_bbr_lets_in_what_the_machine_works_off(self):
        running = self.running({"bbr": True})
        # At rest the estimate is two completions a second of five seconds each: eleven requests are admitted.
        clients = [Client(running.port, "/slow/hang") for _ in range(24)]
        eventually("eleven are in flight", lambda: metric(running, "inbound_in_flight") == 11)
        eventually("they are all there", lambda: self.upstream.requests == 11)
        self.assertEqual(running.get("/a")[0], 503)
        for client in clients:
            client.leave()
        eventually("all have left", lambda: metric(running, "inbound_in_flight") == 0)
        self.assertEqual(running.get("/a")[0], 200)

    def test_a_system_rule_in_shadow_refuses_nothing(self):
        running = self.running({"qps": 2, "mode": "shadow", "id": "dry"})
        self.assertEqual({running.get("/a")[0] for _ in range(6)}, {200})
        eventually("what it would have refused is told",
                   lambda: metric(running, "system_shadow_blocked;rule=dry") == 4)
