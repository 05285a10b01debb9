"""A refusal as a client, an operator and a reader of the log see it."""

import concurrent.futures
import http.client
import json
import time

import grpc

from endings import Behaving
from harness import EnvoyTest, cluster, eventually, free_port, route, virtual_host
from load import Load, Source

MINUTE = {"resource": "login", "count": 2, "intervalMs": 60_000}


class Replies(EnvoyTest):
    def refused(self, settings=None, rules=(MINUTE,), routes=(route("login"),), **how):
        """The answers to the first request (it passes) and to the first request over the limit."""
        document = {"flowRules": list(rules), "envoy": settings or {}}
        self.running = self.envoy(document, routes, access_log=True, **how)
        first, second = self.running.get("/login"), self.running.get("/login")
        self.assertEqual((first[0], second[0]), (200, 200))
        return first, self.running.get("/login")

    def test_a_refusal_is_a_429_that_says_when_to_come_back(self):
        _, (status, headers, body) = self.refused()
        self.assertEqual((status, body), (429, b"too many requests"))
        self.assertEqual(headers["content-type"], "text/plain")
        self.assertIn(int(headers["retry-after"]), (60, 61))
        self.assertEqual(headers["ratelimit-policy"], '"login/60s";q=2;w=60')
        self.assertEqual(headers["ratelimit"], f'"login/60s";r=0;t={headers["retry-after"]}')

    def test_a_client_that_waits_for_retry_after_is_admitted(self):
        running = self.envoy({"flowRules": [{"resource": "login", "count": 1}]}, [route("login")])
        self.assertEqual(running.get("/login")[0], 200)
        status, headers, _ = running.get("/login")
        self.assertEqual(status, 429)
        time.sleep(int(headers["retry-after"]))
        self.assertEqual(running.get("/login")[0], 200)

    def test_passing_responses_carry_the_headers_where_asked_for(self):
        passed, _ = self.refused({"rateLimitHeadersOn": "all"})
        self.assertEqual(passed[1]["ratelimit-policy"], '"login/60s";q=2;w=60')
        self.assertRegex(passed[1]["ratelimit"], r'^"login/60s";r=1(;t=\d+)?$')
        self.assertNotIn("retry-after", passed[1])

    def test_passing_responses_carry_no_headers_by_default(self):
        passed, _ = self.refused()
        self.assertFalse([name for name in passed[1] if "ratelimit" in name])

    def test_the_legacy_headers_are_those_of_envoy(self):
        _, (_, headers, _) = self.refused({"rateLimitHeaders": "legacy"})
        self.assertEqual(headers["x-ratelimit-limit"], "2")
        self.assertEqual(headers["x-ratelimit-remaining"], "0")
        self.assertEqual(headers["x-ratelimit-reset"], headers["retry-after"])
        self.assertNotIn("ratelimit", headers)

    def test_the_headers_can_be_off(self):
        _, (_, headers, _) = self.refused({"rateLimitHeaders": "off"})
        self.assertFalse([name for name in headers if "ratelimit" in name])
        self.assertIn("retry-after", headers)

    def test_status_body_and_headers_are_the_operators(self):
        reply = {"status": 503, "body": "come back later", "headers": {"x-limited-by": "leapgate", "x-colour": "red"}}
        _, (status, headers, body) = self.refused({"reply": reply})
        self.assertEqual((status, body), (503, b"come back later"))
        self.assertEqual((headers["x-limited-by"], headers["x-colour"]), ("leapgate", "red"))

    def test_a_json_reply_is_json(self):
        _, (status, headers, body) = self.refused({"reply": {"format": "json", "body": 'a "quoted" text'}})
        self.assertEqual((status, headers["content-type"]), (429, "application/json"))
        answer = json.loads(body)
        self.assertIn('a "quoted" text', answer.values())
        self.assertIn("login/60s", answer.values())

    def test_a_problem_reply_names_the_violated_policy(self):
        _, (status, headers, body) = self.refused({"reply": {"format": "problem"}})
        self.assertEqual((status, headers["content-type"]), (429, "application/problem+json"))
        problem = json.loads(body)
        self.assertEqual(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded")
        self.assertEqual(problem["violated-policies"], ["login/60s"])
        self.assertEqual(problem["status"], 429)

    def test_the_access_log_says_which_rule_refused(self):
        self.refused()
        lines = eventually("three lines", lambda: len(found := self.running.access_log.read_text().splitlines()) == 3 and found)
        self.assertEqual(lines[:2], ["/login 200 direct_response"] * 2)
        self.assertRegex(lines[2], r"^/login 429 .*login/60s")

    def test_of_several_rules_the_first_that_refuses_names_itself(self):
        rules = [{"resource": "login", "count": 100}, {**MINUTE, "id": "per-minute"}, {**MINUTE, "id": "twin"}]
        _, (_, headers, _) = self.refused(rules=rules)
        self.assertEqual(
            headers["ratelimit-policy"], '"login";q=100;w=1, "per-minute";q=2;w=60, "twin";q=2;w=60')
        lines = eventually("three lines", lambda: len(found := self.running.access_log.read_text().splitlines()) == 3 and found)
        self.assertIn("per-minute", lines[2])
        self.assertNotIn("twin", lines[2])

    def test_a_refused_request_is_charged_to_no_rule(self):
        rules = [{"resource": "login", "count": 3, "intervalMs": 60_000, "id": "wide"}, MINUTE, {"resource": "api", "count": 1}]
        self.refused(rules=rules)
        for _ in range(5):
            self.assertEqual(self.running.get("/login")[0], 429)
        self.assertTrue(self.running.configure({"flowRules": rules[:1]}))
        self.assertEqual([self.running.get("/login")[0] for _ in range(2)], [200, 429])


class Echo(grpc.GenericRpcHandler):
    """A service whose methods all echo the request."""

    def service(self, handler_call_details):
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


class Grpc(EnvoyTest):
    def test_a_grpc_client_gets_resource_exhausted(self):
        port = free_port()
        running = self.envoy(
            {"flowRules": [MINUTE]}, [route("login", cluster="shop", prefix="/shop.Shop/Login")],
            clusters=[cluster("shop", port, http2=True)], access_log=True,
        )
        # After Envoy: gRPC's threads do not survive a fork.
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[Echo()])
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
            login = channel.unary_unary("/shop.Shop/Login")
            self.assertEqual([login(b"me", timeout=10) for _ in range(2)], [b"me", b"me"])
            with self.assertRaises(grpc.RpcError) as refused:
                login(b"me", timeout=10)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(refused.exception.details(), "too many requests")
        lines = eventually("three lines", lambda: len(found := running.access_log.read_text().splitlines()) == 3 and found)
        self.assertRegex(lines[2], r"^/shop.Shop/Login 200 .*login/60s")


class Resources(EnvoyTest):
    def statuses(self, running, path, requests=4):
        return [running.get(path)[0] for _ in range(requests)]

    def test_a_route_without_a_rule_is_not_limited(self):
        running = self.envoy({"flowRules": [MINUTE]}, [route("login"), route("other")])
        self.assertEqual(self.statuses(running, "/other"), [200] * 4)
        self.assertEqual(self.statuses(running, "/login"), [200, 200, 429, 429])

    def test_an_unnamed_route_counts_as_its_virtual_host(self):
        unnamed = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
        running = self.envoy({"flowRules": [{**MINUTE, "resource": "shop"}]}, [unnamed])
        self.assertEqual(self.statuses(running, "/any"), [200, 200, 429, 429])

    def test_what_no_route_matches_counts_as_its_virtual_host_and_without_one_under_no_name(self):
        running = self.envoy({"flowRules": [{**MINUTE, "resource": "*"}]}, hosts=[virtual_host(route("a"), domains=["shop.test"])])

        def statuses(path, *hosts):
            return [running.get(path, {"host": host})[0] for host in hosts]

        self.assertEqual(statuses("/none", *["shop.test"] * 4), [404, 404, 429, 429])
        self.assertEqual(statuses("/a", *["shop.test"] * 4), [200, 200, 429, 429], "a resource of its own")
        self.assertEqual(statuses("/a", "one.test", "two.test", "one.test", "two.test"), [404, 404, 429, 429])

    def test_each_hop_of_an_internal_redirect_is_a_request(self):
        upstream = Behaving()
        self.addCleanup(upstream.close)
        old = route("old", cluster="up")
        old["route"]["internal_redirect_policy"] = {}
        running = self.envoy({"flowRules": [MINUTE, {**MINUTE, "resource": "old", "count": 3}]}, [old, route("login")],
                             clusters=[cluster("up", upstream.port)])
        self.assertEqual([running.get("/old/redirect", {"host": "shop"})[0] for _ in range(4)], [200, 200, 429, 429])
        self.assertEqual(upstream.requests, 3)

    def test_star_leaves_alone_what_another_rule_names(self):
        rules = [{**MINUTE, "resource": "*", "count": 1}, MINUTE]
        running = self.envoy({"flowRules": rules}, [route("login"), route("a"), route("b")])
        self.assertEqual(self.statuses(running, "/login"), [200, 200, 429, 429])
        self.assertEqual(self.statuses(running, "/a"), [200, 429, 429, 429])
        self.assertEqual(self.statuses(running, "/b"), [200, 429, 429, 429])

    def test_star_over_more_routes_than_it_may_name_lets_the_rest_share_one_window(self):
        rules = {"flowRules": [{**MINUTE, "resource": "*", "count": 1}], "envoy": {"maxResources": 2}}
        running = self.envoy(rules, [route(name) for name in "abcd"], workers=1)
        passed = [running.get(f"/{name}")[0] for name in "abcdabcd"]
        self.assertEqual(passed, [200, 200, 200, 429, 429, 429, 429, 429])

    def test_a_bound_on_routes_that_is_put_back_while_the_other_one_drains_holds_again(self):
        def rules(bound):
            return {"flowRules": [{**MINUTE, "resource": "*", "count": 1}], "envoy": {"maxResources": bound}}

        # Envoy reuses a plugin that still has this configuration, without a callback.
        names = "abcdefgh"
        running = self.envoy(rules(100), [route(name) for name in names], workers=1)
        self.assertTrue(running.configure(rules(2)) and running.configure(rules(100)))
        self.assertEqual([running.get(f"/{name}")[0] for name in names], [200] * len(names))

    def test_a_virtual_host_can_be_the_resource(self):
        hosts = [virtual_host(route("a"), route("b"), domains=["shop.test"]), virtual_host(route("c"), name="rest")]
        rules = {"flowRules": [{**MINUTE, "resource": "shop"}], "envoy": {"resource": {"from": "virtualHost"}}}
        running = self.envoy(rules, hosts=hosts)
        self.assertEqual([running.get(path, {"host": "shop.test"})[0] for path in ("/a", "/b", "/a")], [200, 200, 429])
        self.assertEqual(self.statuses(running, "/c"), [200] * 4)

    def test_a_fixed_name_makes_all_routes_one_resource(self):
        rules = {"flowRules": [MINUTE], "envoy": {"resource": {"fixed": "login"}}}
        running = self.envoy(rules, [route("a"), route("b")])
        self.assertEqual([running.get(path)[0] for path in ("/a", "/b", "/a")], [200, 200, 429])

    def test_listeners_with_one_root_id_share_their_windows(self):
        running = self.envoy({"flowRules": [MINUTE]}, [route("login")], listeners=2)
        self.assertEqual([running.get("/login", port=port)[0] for port in running.ports * 2], [200, 200, 429, 429])

    def test_a_plugin_that_stands_twice_in_a_chain_counts_each_request_twice(self):
        running = self.envoy({"flowRules": [{**MINUTE, "count": 4}]}, [route("login")], plugins=2)
        self.assertEqual(self.statuses(running, "/login"), [200, 200, 429, 429])

    def test_scope_worker_counts_in_each_worker_alone(self):
        rules = {"flowRules": [MINUTE], "envoy": {"scope": "worker"}}
        running = self.envoy(rules, [route("login")], workers=4)
        connections = [http.client.HTTPConnection("127.0.0.1", running.port, timeout=10) for _ in range(32)]
        passed = 0
        for connection in connections:
            self.addCleanup(connection.close)
            for _ in range(4):
                connection.request("GET", "/login")
                response = connection.getresponse()
                response.read()
                passed += response.status == 200
        self.assertEqual(running.workers_reached(), 4)
        self.assertEqual(passed, 4 * MINUTE["count"])


class Metrics(EnvoyTest):
    def shows(self, running, rule, resource="login", **wanted):
        """Worker threads export the counters from time to time."""

        def shown():
            metrics = running.prometheus()
            return all(metrics.get(f"leapgate_{name}_rule_{rule}_resource_{resource}{{}}") == value for name, value in wanted.items())

        eventually(f"/stats/prometheus shows {wanted}", shown)

    def test_each_rule_counts_what_it_passed_and_blocked_from_its_first_request_on(self):
        running = self.envoy({"flowRules": [MINUTE, {"resource": "other", "count": 1}]}, [route("login"), route("other")])
        for _ in range(5):
            running.get("/login")
        self.shows(running, "login_60s__2f", passed=2, blocked=3, shadow_blocked=0)
        self.assertEqual([name for name in running.prometheus() if "_rule_other" in name], [])
        running.get("/other")
        self.shows(running, "other", "other", passed=1, blocked=0, shadow_blocked=0)

    def test_a_rule_in_shadow_refuses_nothing_and_counts_what_it_would_have(self):
        running = self.envoy({"flowRules": [{**MINUTE, "id": "dry", "mode": "shadow"}]}, [route("login")])
        self.assertEqual({running.get("/login")[0] for _ in range(5)}, {200})
        self.shows(running, "dry", passed=2, blocked=0, shadow_blocked=3)

    def test_a_document_in_shadow_refuses_nothing_and_counts_what_it_would_have(self):
        running = self.envoy({"mode": "shadow", "flowRules": [{**MINUTE, "id": "dry"}]}, [route("login")])
        self.assertEqual({running.get("/login")[0] for _ in range(5)}, {200})
        self.shows(running, "dry", passed=2, blocked=0, shadow_blocked=3)

    def test_an_enforced_rule_beside_one_in_shadow_still_refuses(self):
        rules = [{**MINUTE, "count": 1, "id": "dry", "mode": "shadow"}, MINUTE]
        running = self.envoy({"flowRules": rules}, [route("login")])
        self.assertEqual([running.get("/login")[0] for _ in range(4)], [200, 200, 429, 429])
        self.shows(running, "login_60s__2f", passed=2, blocked=2)

    def test_what_a_client_saw_is_what_the_counters_say(self):
        running = self.envoy({"flowRules": [{"resource": "login", "count": 100}]}, [route("login")], workers=4)
        source = Source("/login", connections=32)
        with Load(running.port, source):
            time.sleep(1.5)
        passed = len(source.admitted())
        self.shows(running, "login", passed=passed, blocked=len(source.samples) - passed)
