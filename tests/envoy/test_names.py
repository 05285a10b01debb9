"""A Prometheus scrape: each series appears once, and a strict reader accepts it, with labels or without."""

import re

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from harness import ROOT, EnvoyTest, eventually, route

DOCUMENTED = re.findall(r"- {tag_name: (\w+), regex: '(.*)'}", (ROOT / "docs" / "metrics.md").read_text())
LABELS = {"stats_tags": [{"tag_name": name, "regex": regex} for name, regex in DOCUMENTED]}

ALIKE = ("a.b", "a_b", "a/b", "a-b", "a:b", "a b", "é", "è", "inbound", "login", "api_v1", "my-route", 'a"b\\c', "a;b", "waiting")


def series(scrape):
    """The samples of a scrape: {(name, labels): value}. Fails on anything that OpenMetrics forbids, except that Envoy's counters have no `_total`."""
    ours = [line for line in scrape.splitlines() if "leapgate" in line]
    text = "\n".join(ours).replace(" counter", " unknown") + "\n# EOF\n"
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            if key in found:
                raise AssertionError(f"{key} stands twice")
            found[key] = sample.value
    return found


class Names(EnvoyTest):
    RULES = {
        # An id is printable ASCII; a resource is any text.
        "flowRules": [
            *({"resource": name, "count": 100} for name in ALIKE),
            {"resource": "*", "count": 100},
            {"resource": "*", "count": 100, "id": "a_b_resource_a"},
            {"resource": "x", "count": 1, "id": "x"},
            {"resource": "x", "count": 100, "grade": "concurrency"},
            {"resource": "x", "count": 100, "limitApp": "other"},
            {"resource": "x", "count": 100, "key": ["path"]},
            {"resource": "x", "count": 100, "controlBehavior": "throttle"},
            {"resource": "x", "count": 100, "controlBehavior": "warmUp"},
            {"resource": "x", "count": 100, "strategy": "relate", "refResource": "a_b"},
            {"resource": "x", "count": 100, "id": "1"},
        ],
        "degradeRules": [
            {"resource": "x", "grade": "errorRatio", "count": 0.5, "timeWindow": 1, "id": "1"},
            {"resource": "*", "grade": "errorRatio", "count": 0.5, "timeWindow": 1},
        ],
        "systemRules": [{"qps": 10_000, "maxThread": 1000, "id": "1"}],
        "authorityRules": [{"resource": "x", "limitApp": "mallory", "strategy": "black", "id": "1"}],
        "envoy": {"origin": {"header": "x-app"}},
    }

    def scraped(self, **how):
        """A scrape after a request for each route, and two refused requests."""
        routes = [route(name, prefix=f"/{i}/") for i, name in enumerate((*ALIKE, "x", "free", "a"))]
        rules = dict(self.RULES)
        # Letters that no header can carry become `_` in an id: of two such rules one needs an id of its own.
        rules["flowRules"] = [{**rule, **({"id": "e"} if rule["resource"] == "è" else {})} for rule in rules["flowRules"]]
        running = self.envoy(rules, routes, workers=2, **how)
        for i in range(len(routes)):
            self.assertEqual(running.get(f"/{i}/", {"x-app": "app"})[0], 200, routes[i])
        self.assertEqual([running.get(f"/{len(ALIKE)}/")[0] for _ in range(2)], [429, 429])
        return running

    def told(self, running, expected):
        """Waits until a scrape has these values, and returns all samples."""

        def scrape():
            found = series(running.admin("/stats/prometheus"))
            self.missing = {key: (value, found.get(key)) for key, value in expected.items() if found.get(key) != value}
            return not self.missing and found

        try:
            return eventually("a scrape has what is expected", scrape)
        except AssertionError:
            self.fail(f"expected and found: {self.missing}")

    def test_no_series_stands_twice_and_a_strict_reader_takes_the_scrape(self):
        expected = {"leapgate_blocked_rule_x_resource_x": 2, "leapgate_passed_rule____2a_resource_free": 1,
                    "leapgate_breaker_blocked_rule_1_resource_x": 0, "leapgate_system_blocked_rule_1": 0, "leapgate_inbound_in_flight": 0,
                    "leapgate_passed_rule_e_resource____c3a8": 1, "leapgate_info_version_0_1_0__2e2e": 1}
        for shown in ("a_b__2e", "a_b", "a_b__2f", "login", "api_v1", "my_route__2d", "inbound"):
            expected[f"leapgate_passed_rule_{shown}_resource_{shown}"] = 1
        self.told(self.scraped(), {(name, ()): value for name, value in expected.items()})

    def test_the_documented_tags_cut_out_rule_and_resource(self):
        expected = {
            ("leapgate_blocked", (("resource", "x"), ("rule", "x"))): 2,
            ("leapgate_utilization_percent", (("resource", "x"), ("rule", "x"))): 100,
            ("leapgate_system_blocked", (("rule", "1"),)): 0,
            ("leapgate_breaker_blocked", (("resource", "x"), ("rule", "1"))): 0,
            ("leapgate_info", (("version", "0.1.0"),)): 1,
            ("leapgate_admitted", (("rule", "x"), ("window", "1000ms_100"))): 1,
            ("leapgate_passed", (("origin", "app"), ("resource", "x"), ("rule", "x/app=other"))): 1,
            ("leapgate_breaker_state", (("resource", "free"), ("rule", "*/errorRatio"))): 0,
        }
        for rule, resource in (*((name, name) for name in ALIKE if name.isascii()), ("_", "é"), ("e", "è")):
            labels = (("resource", resource.replace(";", "%3b")), ("rule", rule.replace(";", "%3b")))
            expected["leapgate_passed", labels] = 1
        for resource in ("free", "a"):
            expected["leapgate_passed", (("resource", resource), ("rule", "*"))] = 1
        found = self.told(self.scraped(stats_config=LABELS), expected)
        # The names contain no part of the labels.
        self.assertEqual([name for name, _ in found if re.search("rule|resource|__", name)], [])

    def test_filters_of_other_root_ids_share_no_window_and_no_series(self):
        routes = [route(name) for name in ("a", "b")]
        first = {"flowRules": [{"resource": "*", "count": 2, "intervalMs": 60_000, "id": "x"}]}
        second = {"flowRules": [{"resource": "a", "count": 2, "intervalMs": 60_000, "id": "a"}]}
        running = self.envoy(first, routes)
        self.assertEqual([running.get("/a")[0] for _ in range(3)], [200, 200, 429])
        for root_id in ("x", "rule_x", "x;rule=a", "leapgate"):
            self.assertTrue(running.configure(second, root_id=root_id))
            self.assertEqual([running.get("/a")[0] for _ in range(3)], [200, 200, 429], root_id)
        self.told(running, {("leapgate_passed_root_rule_x__5f_rule_a_resource_a", ()): 2})
