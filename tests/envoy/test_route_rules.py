"""Rules that routes have of their own, in their metadata, and updates that change nothing but the metadata."""

import json
import pathlib
import shutil
import tempfile

from harness import EnvoyTest, eventually, route, virtual_host

RULES = {
    "flowRules": [{"resource": "login", "count": 10, "intervalMs": 600_000}],
    "envoy": {"allowRouteRules": {"maxCount": 100}},
}


def owned(name, rules, **others):
    """A route whose metadata has these rules, and other values beside them."""
    return {**route(name), "metadata": {"filter_metadata": {"leapgate": {"flowRules": rules, **others}}}}


def limit(count, **fields):
    return [{"count": count, "intervalMs": 600_000, **fields}]


class RouteRules(EnvoyTest):
    def start(self, own, workers):
        """An Envoy that reads its routes from a file."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-"))
        self.addCleanup(shutil.rmtree, folder)
        self.routes = folder / "routes.json"
        self.write(own)
        source = {"path_config_source": {"path": str(self.routes)}, "resource_api_version": "V3"}
        rds = {"rds": {"route_config_name": "edge", "config_source": source}, "route_config": None}
        return self.envoy(RULES, workers=workers, manager_fields=rds)

    def write(self, own):
        hosts = [virtual_host(owned("login", own), route("other"))]
        resource = {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "edge", "virtual_hosts": hosts}
        fresh = self.routes.with_suffix(".new")
        fresh.write_text(json.dumps({"resources": [resource]}))
        fresh.rename(self.routes)

    def passes(self, envoy, n=30):
        return sum(envoy.get("/login")[0] == 200 for _ in range(n))

    def pass_eventually(self, envoy, n):
        """Exactly `n` more requests pass once the workers have read the update."""
        passed = []
        eventually(f"{n} pass", lambda: passed.append(self.passes(envoy, 8)) or sum(passed) >= n)
        self.assertEqual(sum(passed) + self.passes(envoy), n)

    def test_an_update_of_the_metadata_alone_is_seen_and_the_window_goes_on(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                envoy = self.start(limit(3), workers)
                self.assertEqual(self.passes(envoy), 3)
                self.assertEqual(envoy.get("/login")[1]["ratelimit-policy"],
                                 '"login/600s";q=10;w=600, "route:login/600s";q=3;w=600')
                self.write(json.dumps(limit(5)))
                self.pass_eventually(envoy, 2)
                self.write(limit(6) + limit(9, key=["clientIp"]))
                self.pass_eventually(envoy, 1)
                # Without rules of its own, the route has what the document gives it.
                self.write([])
                self.pass_eventually(envoy, 4)
                self.assertEqual(envoy.get("/other")[0], 200)
                self.assertEqual(envoy.stat("wasmcustom.leapgate.route_rules_rejected"), 0)

    def test_what_is_wrong_is_told_and_counted_and_the_rules_of_the_document_hold(self):
        for own, fault in (
            (limit(101), "flowRules[0].count: `101` is more than a route may have; use at most 100"),
            (limit(3, resource="other"), "flowRules[0]: `resource` is always that of the route; leave it out"),
            (json.dumps(limit(3))[:-1], "document: `count\": 3, \"intervalMs\": 600000}` breaks off"),
            ([None], "flowRules[0]: `null` is not a value; use an object"),
        ):
            with self.subTest(fault):
                envoy = self.start(own, 1)
                self.assertEqual(self.passes(envoy), 10)
                envoy.wait_for_log(f"leapgate: the rules in the metadata of route login are not in force: {fault}")
                # Metrics of a worker are merged into those of the process after a moment.
                eventually("it is counted", lambda: envoy.stat("wasmcustom.leapgate.route_rules_rejected") == 1)

    def test_a_null_beside_the_rules_or_in_them_hides_none(self):
        rules = {**RULES, "flowRules": []}
        routes = [owned("list", limit(3, id=None), rev=None), owned("text", json.dumps(limit(4, id=None)), rev=None)]
        envoy = self.envoy(rules, routes, workers=2)
        for path, passes in (("/list", 3), ("/text", 4)):
            self.assertEqual(sum(envoy.get(path)[0] == 200 for _ in range(12)), passes, path)

    def test_an_update_by_lds_with_the_same_configuration_is_seen(self):
        envoy = self.envoy(RULES, [owned("login", limit(3))], workers=2)
        self.assertEqual(self.passes(envoy), 3)
        envoy.hosts = [virtual_host(owned("login", limit(5)))]
        self.assertTrue(envoy.configure(RULES))
        self.pass_eventually(envoy, 2)
