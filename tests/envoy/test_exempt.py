"""Requests that limits leave alone, and counts that requests bring along."""

from harness import EnvoyTest, eventually, route


def metadata_of(*rules):
    """A filter that writes headers into the metadata of a request."""
    return {
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [
                {"header": header, "on_header_present": {"metadata_namespace": space, "key": key, "type": kind}, "remove": True}
                for header, space, key, kind in rules
            ],
        },
    }


class Exempt(EnvoyTest):
    def passes(self, envoy, path, headers, n=6):
        return sum(envoy.get(path, headers)[0] == 200 for _ in range(n))

    def test_a_rule_leaves_alone_a_network_a_header_and_an_origin(self):
        exempt = [{"clientIp": "203.0.113.0/24"}, {"clientIp": "2001:db8::/32"}, {"header": "x-probe", "value": "1"}, {"origin": "batch"}]
        rules = {
            "flowRules": [
                {"resource": "login", "count": 2, "intervalMs": 600_000, "exempt": exempt},
                {"resource": "api", "count": 2, "intervalMs": 600_000, "key": ["clientIp"], "exempt": exempt},
            ],
            "envoy": {"origin": {"header": "x-app"}},
        }
        envoy = self.envoy(rules, [route("login"), route("api")], trusted_hops=1, workers=2)
        for path in ("/login", "/api"):
            with self.subTest(path):
                for headers in ({"x-forwarded-for": "203.0.113.7"}, {"x-forwarded-for": "2001:db8:1::7"},
                                {"x-forwarded-for": "::ffff:203.0.113.7"}, {"x-probe": "1"}, {"x-app": "batch"}):
                    self.assertEqual(self.passes(envoy, path, headers), 6, headers)
                other = {"x-forwarded-for": "198.51.100.7", "x-probe": "2", "x-app": "shop"}
                self.assertEqual(self.passes(envoy, path, other), 2)
                # A client cannot say that it is in that network.
                spoofed = {"x-forwarded-for": "203.0.113.7, 198.51.100.7"}
                self.assertEqual(self.passes(envoy, path, spoofed), 0)

    def test_what_the_settings_exempt_is_counted_by_no_limit_and_told_none(self):
        rules = {
            "flowRules": [{"resource": "*", "count": 2, "intervalMs": 600_000, "id": "all"}],
            "systemRules": [{"qps": 1000}],
            "envoy": {"exempt": [{"header": "x-probe", "value": "1"}], "rateLimitHeadersOn": "all"},
        }
        envoy = self.envoy(rules, [route("login")], workers=2)
        probe = {"x-probe": "1"}
        self.assertEqual(self.passes(envoy, "/login", probe), 6)
        self.assertNotIn("ratelimit", envoy.get("/login", probe)[1])
        self.assertEqual(self.passes(envoy, "/login", {}), 2)
        status, headers, _ = envoy.get("/login")
        self.assertEqual((status, headers["ratelimit-policy"]), (429, '"all";q=2;w=600'))
        self.assertEqual(self.passes(envoy, "/login", probe), 6)

    def test_an_update_exempts_and_goes_on_with_what_was_counted(self):
        rule = {"resource": "login", "count": 2, "intervalMs": 600_000}
        envoy = self.envoy({"flowRules": [rule]}, [route("login")], workers=2)
        self.assertEqual(self.passes(envoy, "/login", {"x-probe": "1"}), 2)
        self.assertTrue(envoy.configure({"flowRules": [{**rule, "exempt": [{"header": "x-probe"}]}]}))
        self.assertEqual(self.passes(envoy, "/login", {"x-probe": "1"}), 6)
        self.assertEqual(self.passes(envoy, "/login", {}), 0)


class Plans(EnvoyTest):
    COUNT = {"metadata": ["plans", "requests"], "default": 2, "atMost": 7}

    def rules(self, **fields):
        rule = {"resource": "api", "intervalMs": 600_000, "key": [{"header": "x-client"}], "id": "plans", **fields}
        return {"flowRules": [rule], "envoy": {"rateLimitHeadersOn": "all"}}

    def answers(self, envoy, client, plan=None, n=9):
        headers = {"x-client": client} | ({} if plan is None else {"x-plan": plan})
        return [envoy.get("/api", headers) for _ in range(n)]

    def test_a_request_has_the_count_that_an_earlier_filter_has_found(self):
        filters = [metadata_of(("x-plan", "plans", "requests", "NUMBER"))]
        envoy = self.envoy(self.rules(count=self.COUNT), [route("api")], workers=4, before=filters)
        passed = lambda *client: [status for status, *_ in self.answers(envoy, *client)].count(200)
        self.assertEqual([passed("a", "5"), passed("b", "1"), passed("c", "1000"), passed("d", "0"), passed("e", "2.5")], [5, 1, 7, 0, 2])
        self.assertEqual(passed("a", "6"), 1, "another plan goes on with what was counted")
        wrong = ["-1", "many", "1e300", None]
        self.assertEqual([passed(f"wrong {plan}", plan) for plan in wrong], [2] * len(wrong))
        told = [headers["ratelimit-policy"] for _, headers, _ in self.answers(envoy, "f", "3", 4) + self.answers(envoy, "f", None, 1)]
        self.assertEqual(told, ['"plans";q=3;w=600'] * 4 + ['"plans";q=2;w=600'])
        name = "wasmcustom.leapgate.defaulted;rule=plans"
        eventually(f"{name} is exported", lambda: envoy.stat(name) == 9 * len(wrong) + 1)

    def test_the_owner_of_a_route_says_the_count(self):
        large = {**route("api"), "metadata": {"filter_metadata": {"plans": {"requests": 5}}}}
        count = {**self.COUNT, "routeMetadata": self.COUNT["metadata"], "metadata": None}
        envoy = self.envoy(self.rules(count=count), [large], workers=2)
        statuses = [status for status, *_ in self.answers(envoy, "a")]
        self.assertEqual(statuses.count(200), 5)


class Shares(EnvoyTest):
    def test_a_share_of_the_clients_is_refused_by_all_workers_alike_and_also_after_an_update(self):
        rule = {"resource": "api", "count": 1, "intervalMs": 600_000, "key": [{"header": "x-client"}], "id": "share"}
        envoy = self.envoy({"flowRules": [{**rule, "enforcePercent": 50}]}, [route("api")], workers=4)
        clients = [f"client {number}" for number in range(60)]
        refused = lambda: {client for client in clients if envoy.get("/api", {"x-client": client})[0] == 429}
        self.assertEqual(refused(), set(), "each has one request")
        half = refused()
        self.assertTrue(10 < len(half) < 50, len(half))
        self.assertEqual([refused(), refused()], [half, half])
        name = "wasmcustom.leapgate.shadow_blocked;rule=share"
        eventually(f"{name} is exported", lambda: envoy.stat(name) == 3 * (60 - len(half)))
        self.assertTrue(envoy.configure({"flowRules": [{**rule, "enforcePercent": 75}]}))
        more = refused()
        self.assertTrue(more > half, "a larger share has all clients of a smaller one")
        self.assertTrue(envoy.configure({"flowRules": [{**rule, "enforcePercent": 50}]}))
        self.assertEqual(refused(), half)
