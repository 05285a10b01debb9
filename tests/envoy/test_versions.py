"""The oldest and the newest Envoy that the documents name: one short test for each kind of rule."""

import re
import time

from endings import Behaving, metric
from harness import ENVOY, OLDEST_ENVOY, ROOT, EnvoyTest, cluster, eventually, route
from load import Load, Source, most_in_any_window

LIMIT = 100


class Claims:
    """For a class with a `binary`, its index in `supported`, of "from 1.36 to 1.40", and whether `vm_config` has the list of
    capabilities."""

    def start(self, rules, **how):
        self.upstream_server = Behaving()
        self.addCleanup(self.upstream_server.close)
        routes = [route("hot"), route("pay", cluster="up"), route("mail", cluster="up")]
        return self.envoy(rules, routes, workers=4, clusters=[cluster("up", self.upstream_server.port)], binary=self.binary, **how)

    def test_it_is_the_one_that_the_documents_name(self):
        versions = re.search(r"Envoy (\d+\.\d+) to (\d+\.\d+)", (ROOT / "docs" / "envoy.md").read_text()).groups()
        running = self.start({})
        self.assertIn(f"/{versions[self.supported]}.", running.admin("/server_info"))

    def test_a_limit_holds_over_four_workers_and_is_exported_to_prometheus(self):
        running, hot = self.start({"flowRules": [{"resource": "hot", "count": LIMIT}]}), Source("/hot", connections=32)
        with Load(running.port, hot):
            time.sleep(2)
        self.assertEqual(running.workers_reached(), 4)
        self.assertLessEqual(most_in_any_window(hot.admitted(), 1.0), LIMIT)
        self.assertGreaterEqual(len(hot.admitted()), 1.8 * LIMIT)
        told = lambda: {name: value for name, value in running.prometheus().items() if re.match("leapgate_(passed|blocked)_rule_hot", name)}
        eventually("they are told", lambda: sum(told().values()) == len(hot.samples))

    def test_a_breaker_opens_for_all_workers_and_closes_after_a_probe(self):
        running = self.start({"degradeRules": [{"id": "pay", "resource": "pay", "grade": "errorRatio", "count": 0.5,
                                                "timeWindow": 1, "minRequestAmount": 4}]})
        self.upstream_server.status = 500
        refused = lambda: "retry-after" in running.get("/pay")[1]
        eventually("it opens", refused)
        self.assertTrue(all(refused() for _ in range(16)))
        self.assertEqual(metric(running, "breaker_state;rule=pay"), 1)
        self.upstream_server.status = 200
        eventually("it closes", lambda: not refused())
        self.assertFalse(any(refused() for _ in range(16)))
        self.assertEqual(metric(running, "breaker_state;rule=pay"), 0)

    def test_each_client_has_a_limit_of_its_own(self):
        running = self.start({"flowRules": [{"resource": "hot", "count": 3, "intervalMs": 60_000, "key": [{"header": "x-api-key"}]}]})
        for key in ("one", "two"):
            statuses = [running.get("/hot", {"x-api-key": key})[0] for _ in range(9)]
            self.assertEqual(statuses, [200] * 3 + [429] * 6)

    def test_a_throttled_request_waits_for_its_turn(self):
        running = self.start({"flowRules": [{"resource": "mail", "count": 10, "controlBehavior": "throttle"}]})
        mail = Source("/mail", connections=4)
        begin = time.monotonic()
        with Load(running.port, mail):
            time.sleep(1)
        self.assertEqual({sample.status for sample in mail.samples}, {200})
        self.assertLessEqual(len(mail.samples), 10 * (time.monotonic() - begin) + 1)
        self.assertGreaterEqual(len(mail.samples), 8)
        eventually("nobody waits", lambda: metric(running, "waiting") == 0)


    def test_the_capabilities_that_the_documents_name_are_enough(self):
        names = re.search(r"allowed_capabilities: {(.*)}\n```", (ROOT / "docs" / "envoy.md").read_text(), re.DOTALL)[1]
        names = re.findall(r"(\w+): {}", names)

        def start(names):
            restriction = {"capability_restriction_config": {"allowed_capabilities": {name: {} for name in names}}}
            rules = {"flowRules": [{"resource": "hot", "count": 3, "intervalMs": 60_000, "key": ["clientIp"]},
                                   {"resource": "mail", "count": 10, "controlBehavior": "throttle"}],
                     "degradeRules": [{"id": "pay", "resource": "pay", "grade": "errorCount", "count": 1, "timeWindow": 60,
                                       "minRequestAmount": 1}]}
            return self.start(rules, plugin_how={"vm_fields" if self.in_vm_config else "fields": restriction})

        running = start(names)
        self.assertEqual([running.get("/hot")[0] for _ in range(4)], [200] * 3 + [429])
        self.assertEqual([running.get("/mail")[0] for _ in range(3)], [200] * 3)
        self.upstream_server.status = 500
        eventually("it opens", lambda: "retry-after" in running.get("/pay")[1])
        self.assertEqual(metric(running, "breaker_state;rule=pay"), 1)
        self.assertNotIn("leapgate: ", running.log())
        # Envoy heeds the list: without this capability the filter cannot count.
        start(set(names) - {"proxy_define_metric"}).wait_for_log("does not count")


class Oldest(Claims, EnvoyTest):
    binary, supported, in_vm_config = OLDEST_ENVOY, 0, False


class Newest(Claims, EnvoyTest):
    binary, supported, in_vm_config = ENVOY, 1, True
