"""A limit of each client, for the process: whatever workers its requests reach, and whatever other clients do."""

import json
import time

from harness import EnvoyTest, cluster, eventually, route
from load import Load, Source, most_in_any_window

SECONDS = 8
LIMIT = 100


def rule(key, count, resource="api", **fields):
    return {"resource": resource, "count": count, "key": key, **fields}


class OneClient(EnvoyTest):
    """Two clients: one sends as many requests as it can, the other stays below its limit."""

    def holds(self, workers, key, clients, **how):
        envoy = self.envoy({"flowRules": [rule(key, LIMIT)]}, [route("api")], workers=workers, **how)
        greedy, calm = (f"{client}\r\n" for client in clients)
        greedy = Source("/api", connections=32, headers=greedy)
        calm = Source("/api", connections=4, rate=20, headers=calm)
        with Load(envoy.port, greedy, calm):
            time.sleep(SECONDS)
        self.assertEqual(envoy.workers_reached(), workers, "each worker had a connection")
        self.assertEqual(greedy.lost + calm.lost, 0)
        self.assertGreaterEqual(len(greedy.samples), 5 * LIMIT * SECONDS, "that was no overload")
        self.assertLessEqual(most_in_any_window(greedy.admitted(), 1.0), LIMIT)
        # Twenty buckets of twenty-one, in the long run.
        self.assertGreaterEqual(len(greedy.admitted()), 0.9 * LIMIT * SECONDS)
        self.assertEqual({sample.status for sample in greedy.samples}, {200, 429})
        self.assertGreaterEqual(len(calm.samples), 0.9 * 20 * SECONDS)
        self.assertEqual({sample.status for sample in calm.samples}, {200}, "the calm client was disturbed")

    def test_never_more_than_its_limit_by_a_header_with_one_worker(self):
        self.holds(1, [{"header": "x-api-key"}], ["x-api-key: greedy", "x-api-key: calm"])

    def test_never_more_than_its_limit_by_a_header_with_four_workers(self):
        self.holds(4, [{"header": "x-api-key"}], ["x-api-key: greedy", "x-api-key: calm"])

    def test_never_more_than_its_limit_by_its_address_with_four_workers(self):
        self.holds(4, ["clientIp"], ["x-forwarded-for: 203.0.113.7", "x-forwarded-for: 203.0.113.8"], trusted_hops=1)


class Flood(EnvoyTest):
    KEYS = 100_000
    MAX_KEYS = 16_000
    # For each key of the bound, as docs/envoy.md says, and the allocators' share.
    BYTES_PER_KEY, SLACK = 180, 1_500_000

    def test_a_flood_of_clients_leaves_a_limited_one_limited_and_memory_flat(self):
        rules = {"flowRules": [rule([{"header": "x-api-key"}], 5, intervalMs=600_000, maxKeys=self.MAX_KEYS)]}
        envoy = self.envoy(rules, [route("api"), route("free")], workers=4)
        mine = {"x-api-key": "limited"}
        self.assertEqual([envoy.get("/api", mine)[0] for _ in range(7)], [200] * 5 + [429] * 2)

        def memory():
            return int(json.loads(envoy.admin("/memory"))["allocated"])

        def flood(first, count):
            keys = (f"x-api-key: client-{number}\r\n" for number in range(first, 10 * self.KEYS))
            crowd = Source("/api", connections=32, headers=keys)
            limited = Source("/api", connections=4, rate=50, headers="x-api-key: limited\r\n")
            with Load(envoy.port, crowd, limited):
                eventually(f"{count} clients have come", lambda: len(crowd.samples) >= count, 120)
            self.assertGreater(len(limited.samples), 20)
            self.assertEqual({sample.status for sample in limited.samples}, {429}, "the flood was an amnesty")
            self.assertIn(200, {sample.status for sample in crowd.samples})
            return len(crowd.samples)

        with Load(envoy.port, Source("/free", connections=36)):
            time.sleep(2)  # connections and workers have their memory
        before = memory()
        came = flood(0, 6 * self.KEYS // 10)
        full = memory()
        more = flood(came, self.KEYS - came)
        came += more
        self.assertGreaterEqual(came, self.KEYS)
        after = memory()
        print(f"\n{came} clients: {before} bytes before, {full} after most of them, {after} after all; "
              f"{(after - before) / self.MAX_KEYS:.0f} for each key of the bound")
        # Less than one more record for each client would need; Envoy's buffers come and go by some hundred kilobytes.
        self.assertLess(after - full, 16 * more, "memory grows with the flood")
        self.assertLess(after - before, self.BYTES_PER_KEY * self.MAX_KEYS + self.SLACK)
        self.assertEqual(envoy.workers_reached(), 4)


class Crowd(EnvoyTest):
    BOUND, NEW = 2000, 200

    def test_of_100_new_clients_95_pass_after_a_flood_of_as_many_as_the_bound_and_the_log_says_so_once(self):
        key = [{"header": "x-api-key"}]
        rules = {"flowRules": [rule(key, 5, id="login", intervalMs=600_000, maxKeys=self.BOUND)]}
        envoy = self.envoy(rules, [route("api")], workers=4)
        keys = (f"x-api-key: client-{number}\r\n" for number in range(100 * self.BOUND))
        crowd = Source("/api", connections=8, rate=800, headers=keys)
        with Load(envoy.port, crowd):
            eventually("as many again as the bound have come", lambda: len(crowd.samples) >= 2 * self.BOUND, 60)
        print(f"\n{len(crowd.samples)} clients have come, twice the bound are {2 * self.BOUND}")
        new = [envoy.get("/api", {"x-api-key": f"new-{number}"})[0] for number in range(self.NEW)]
        self.assertGreaterEqual(new.count(200), 0.95 * self.NEW)
        name = "wasmcustom.leapgate.shared;rule=login"
        eventually(f"{name} is exported", lambda: envoy.stat(name) > 0)
        told = "rule `login`: more keys count than it keeps apart; some share a window, which is stricter for them: raise `maxKeys`"
        self.assertEqual(envoy.log().count(told), 1)


class Parts(EnvoyTest):
    def statuses(self, envoy, *requests):
        return [envoy.get(path, headers)[0] for path, headers in requests]

    def test_each_part_of_a_request_can_be_a_key(self):
        routes = ["header", "query", "cookie", "path", "method", "host", "address", "two"]
        keys = {
            "header": [{"header": "X-Api-Key"}], "query": [{"query": "user"}], "cookie": [{"cookie": "sid"}],
            "path": ["path"], "method": ["method"], "host": ["host"],
            "address": [{"clientIp": {"v4": 24, "v6": 56}}], "two": [{"header": "x-a"}, {"header": "x-b"}],
        }
        rules = {"flowRules": [rule(keys[name], 1, name, intervalMs=600_000) for name in routes]}
        envoy = self.envoy(rules, [route(name) for name in routes], trusted_hops=1)
        # A client's first request, the same client in another spelling, and another client.
        cases = {
            "header": [("", {"x-api-key": "a"}), ("", {"X-API-KEY": "a"}), ("", {"x-api-key": "b"})],
            "query": [("?user=a", {}), ("?x=1&u%73er=%61", {}), ("?user=b", {})],
            "cookie": [("", {"cookie": "sid=a"}), ("", {"cookie": 'x=1; sid="a"'}), ("", {"cookie": "sid=b"})],
            "path": [("/a?x=1", {}), ("/%61?x=2", {}), ("/b", {})],
            "host": [("", {"host": "a.example"}), ("", {"host": "A.example:80"}), ("", {"host": "b.example"})],
            "address": [("", {"x-forwarded-for": "203.0.113.7"}), ("", {"x-forwarded-for": "9.9.9.9, 203.0.113.8"}),
                        ("", {"x-forwarded-for": "203.0.114.7"})],
            "two": [("", {"x-a": "ab", "x-b": "c"}), ("", {"x-b": "c", "x-a": "ab"}), ("", {"x-a": "a", "x-b": "bc"})],
        }
        for name, requests in cases.items():
            with self.subTest(name):
                requests = [(f"/{name}{path}", headers) for path, headers in requests]
                self.assertEqual(self.statuses(envoy, *requests), [200, 429, 200])
        with self.subTest("an IPv6 prefix"):
            addresses = ["2001:db8:0:1::1", "2001:DB8:0:2::2", "2001:db8:1:1::1", "::ffff:198.51.100.1", "198.51.100.2"]
            requests = [("/address", {"x-forwarded-for": address}) for address in addresses]
            self.assertEqual(self.statuses(envoy, *requests), [200, 429, 200, 200, 429])
        with self.subTest("method"):
            self.assertEqual(self.statuses(envoy, ("/method", {}), ("/method", {})), [200, 429])

    def test_requests_that_lack_a_part_are_one_client(self):
        envoy = self.envoy({"flowRules": [rule([{"header": "x-api-key"}], 2, intervalMs=600_000)]}, [route("api")])
        requests = [("/api", {}), ("/api", {"x-api-key": ""}), ("/api", {}), ("/api", {"x-api-key": "a"})]
        self.assertEqual(self.statuses(envoy, *requests), [200, 200, 429, 200])

    def test_an_untrusted_header_does_not_change_the_address(self):
        envoy = self.envoy({"flowRules": [rule(["clientIp"], 1, intervalMs=600_000)]}, [route("api")])
        requests = [("/api", {"x-forwarded-for": f"203.0.113.{i}"}) for i in range(3)]
        self.assertEqual(self.statuses(envoy, *requests), [200, 429, 429])


class Rules(EnvoyTest):
    KEY = [{"header": "x-api-key"}]

    def passes(self, envoy, client, n=10):
        return sum(envoy.get("/api", {"x-api-key": client})[0] == 200 for _ in range(n))

    def test_in_shadow_mode_all_pass_and_are_counted(self):
        envoy = self.envoy({"flowRules": [rule(self.KEY, 2, id="per-client", mode="shadow")]}, [route("api")])
        self.assertEqual(self.passes(envoy, "a"), 10)
        name = "wasmcustom.leapgate.shadow_blocked;rule=per-client;;2d"
        eventually(f"{name} is exported", lambda: envoy.stat(name) >= 8)

    def test_a_key_may_have_a_count_of_its_own(self):
        gold = [{"value": ["gold"], "count": 5}]
        envoy = self.envoy({"flowRules": [rule(self.KEY, 2, intervalMs=600_000, keyItems=gold)]}, [route("api")])
        self.assertEqual([self.passes(envoy, client) for client in ("a", "gold")], [2, 5])

    def test_a_change_of_the_count_or_of_the_machine_gives_no_quota_back(self):
        rules = {"flowRules": [rule(self.KEY, 2, intervalMs=600_000)]}
        envoy = self.envoy(rules, [route("api")])
        self.assertEqual(self.passes(envoy, "a"), 2)
        rules["flowRules"][0]["count"] = 5
        self.assertTrue(envoy.configure(rules))
        self.assertEqual(self.passes(envoy, "a"), 3)
        self.assertTrue(envoy.configure(rules, vm_configuration="another machine"))
        self.assertEqual([self.passes(envoy, client) for client in ("a", "b")], [0, 5])

    def test_calls_in_flight_of_a_client_come_back(self):
        upstream = self.upstream(0.02)
        rules = {"flowRules": [rule(self.KEY, 3, grade="concurrency")]}
        envoy = self.envoy(rules, [route("api", cluster="up")], workers=4, clusters=[cluster("up", upstream.port)])
        source = Source("/api", connections=32, headers="x-api-key: a\r\n")
        with Load(envoy.port, source):
            time.sleep(3)
        self.assertEqual(upstream.most, 3)
        self.assertEqual({sample.status for sample in source.samples}, {200, 429})
        eventually("all have ended", lambda: self.passes(envoy, "a", 1) == 1)
        self.assertEqual(self.passes(envoy, "a"), 10)
