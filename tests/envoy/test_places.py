"""More names without a rule than the bound: each still has one limit for the process."""

import http.client
import time

from harness import EnvoyTest, eventually, route

HOUR = {"intervalMs": 3_600_000, "sampleCount": 100}


class Names(EnvoyTest):
    def passed(self, envoy, asks, connections=32):
        """How many requests pass for each (path, headers) in `asks`; every connection sends each of them."""
        opened = [http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=30) for _ in range(connections)]
        passed = [0] * len(asks)
        for offset, connection in enumerate(opened):
            self.addCleanup(connection.close)
            # Each connection, and so each worker, sees the names in another order.
            for at in range(len(asks)):
                which = (at * 7 + offset * 11) % len(asks)
                path, headers = asks[which]
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                response.read()
                self.assertIn(response.status, (200, 429))
                passed[which] += response.status == 200
        self.assertEqual(envoy.workers_reached(), 4, "each worker had a connection")
        return passed

    def test_a_route_beyond_the_bound_has_one_limit_over_four_workers(self):
        rules = {"flowRules": [{"resource": "*", "count": 20, **HOUR}], "envoy": {"maxResources": 10}}
        names = [f"route-{number}-x" for number in range(40)]
        envoy = self.envoy(rules, [route(name) for name in names], workers=4)
        passed = self.passed(envoy, [(f"/{name}", {}) for name in names])
        self.assertEqual(sum(count == 20 for count in passed), 10, passed)
        self.assertEqual(sum(count for count in passed if count != 20), 20, passed)

    def test_made_up_origins_have_no_second_limit_in_another_worker(self):
        rules = {"flowRules": [{"resource": "api", "count": 5, "limitApp": "other", **HOUR}],
                 "envoy": {"origin": {"header": "x-app"}}}
        envoy = self.envoy(rules, [route("api")], workers=4)
        passed = self.passed(envoy, [("/api", {"x-app": f"made-up-{number}"}) for number in range(1103)])
        self.assertEqual(sum(count == 5 for count in passed), 1000, passed)
        self.assertEqual(sum(count for count in passed if count != 5), 5, passed)
        series = [name for name in envoy.stats() if "leapgate" in name]
        self.assertLess(len(series), 1001 * 6 + 50, "the bound on metrics holds for the process")

    def test_a_place_goes_to_another_route_when_nothing_counts_there_any_more(self):
        rules = {"flowRules": [{"resource": "*", "count": 1}], "envoy": {"maxResources": 1}}
        envoy = self.envoy(rules, [route("old"), route("new")], workers=4)
        self.assertEqual(envoy.get("/old")[0], 200)

        def has_its_own():
            time.sleep(1.2)  # the window of a second
            before = envoy.get("/new")[0], envoy.get("/new")[0]
            return before == (200, 429) and envoy.get("/old")[0] == 200

        eventually("the new route has a window of its own", has_its_own, 20)
