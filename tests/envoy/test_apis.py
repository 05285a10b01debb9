"""An API has one limit for the process: by whatever route, worker and spelling of its path a request comes."""

import http.client

from harness import EnvoyTest, eventually, route
from load import Load, Source

LIMIT = 20
RULES = {
    "apiDefinitions": [
        {"apiName": "login", "predicateItems": [{"pattern": "/login", "method": "POST"}, {"pattern": "/v2/session/**", "matchStrategy": 1}]},
        {"apiName": "chat", "predicateItems": [{"pattern": "/chat", "host": "llm.example.com"}]},
    ],
    "flowRules": [
        {"resource": "login", "count": LIMIT, "intervalMs": 60_000},
        {"resource": "chat", "count": 1, "intervalMs": 60_000},
        {"resource": "web", "count": 1000, "intervalMs": 60_000},
    ],
}
SPELLINGS = ["/login", "/%6Cogin", "//login/", "/login;x=1", "/LOGIN?a=b", "/v2/session", "/v2%2Fsession/7", "/v2/./session/../session/x"]


def routes():
    """All requests come by two routes, whose names say nothing of the API."""
    return [route("mobile", prefix="/v2"), route("web", prefix="/")]


def send(envoy, path, method="GET", host="shop.example.com"):
    """The status of a request whose path is sent as it is written."""
    connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("host", host)
        connection.putheader("content-length", "0")
        connection.endheaders()
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


class Apis(EnvoyTest):
    def test_an_api_has_one_limit_for_its_routes_and_spellings_on_one_worker_and_on_four(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                envoy = self.envoy(RULES, routes(), workers=workers)
                statuses = [send(envoy, SPELLINGS[i % len(SPELLINGS)], "POST") for i in range(3 * LIMIT)]
                self.assertEqual(statuses.count(200), LIMIT)
                self.assertEqual(statuses, [200] * LIMIT + [429] * 2 * LIMIT)
                # What the API refuses is not charged to the route, and what does not belong to it passes.
                self.assertEqual([send(envoy, "/login"), send(envoy, "/login/x", "POST"), send(envoy, "/")], [200, 200, 200])
                self.assertEqual([send(envoy, "/chat", host="LLM.example.com:8443"), send(envoy, "/chat", host="llm.example.com")], [200, 429])
                self.assertEqual(send(envoy, "/chat", host="other.example.com"), 200)
                passed = lambda: envoy.stat("wasmcustom.leapgate.passed;rule=login")
                self.assertEqual(eventually("it is exported", lambda: passed() == LIMIT and passed()), LIMIT)

    def test_four_workers_admit_no_more_than_the_limit_of_an_api_under_load(self):
        rules = {**RULES, "flowRules": [{"resource": "login", "count": 500, "intervalMs": 60_000}]}
        envoy = self.envoy(rules, routes(), workers=4)
        sources = [Source("/v2/session", connections=16), Source("/x/../v2%2Fsession", connections=16)]
        with Load(envoy.port, *sources):
            eventually("the limit is used up", lambda: sum(len(source.samples) for source in sources) > 2000)
        self.assertEqual(envoy.workers_reached(), 4)
        self.assertEqual(sum(len(source.admitted()) for source in sources), 500)
