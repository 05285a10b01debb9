"""A call in flight is released however it ends."""

import http.client
import time

from endings import UPGRADE, Behaving, Client, metric, none_in_flight
from harness import EnvoyTest, cluster, eventually, free_port, listener, route
import harness

#: A limit of one route, and a limit of all routes together.
RULES = {
    "flowRules": [{"resource": name, "grade": "concurrency", "count": 3, "id": name} for name in ("pay", "dead", "after", "before")],
    "systemRules": [{"maxThread": 3}],
}
GAUGES = [*(f"in_flight;rule={name}" for name in ("pay", "dead", "after")), "inbound_in_flight"]


def fault(name, path):
    """A filter that answers requests to this path itself."""
    return {"name": name, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
        "headers": [{"name": ":path", "string_match": {"prefix": path}}],
        "abort": {"http_status": 555, "percentage": {"numerator": 100}},
    }}


class Endings(EnvoyTest):
    def running(self, workers):
        self.upstream = Behaving()
        self.addCleanup(self.upstream.close)
        retry = {"retry_on": "5xx,reset", "num_retries": 2}
        routes = [
            route("retry", cluster="pay", prefix="/pay/retry"), route("late", cluster="pay", prefix="/pay/late"),
            route("pay", cluster="pay"), route("dead", cluster="dead"), route("after", cluster="pay"), route("before", cluster="pay"),
        ]
        routes[0]["route"]["retry_policy"] = retry
        routes[1]["route"]["timeout"] = "0.05s"
        routes[2]["route"]["upgrade_configs"] = [{"upgrade_type": "websocket"}]
        routes[0]["name"] = routes[1]["name"] = "pay"
        # A filter before ours answers /before, a filter after it answers /after.
        plain = listener

        def with_faults(*arguments, **keywords):
            made = plain(*arguments, **keywords)
            filters = made["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
            filters[:] = [fault("before", "/before"), filters[0], fault("after", "/after"), *filters[1:]]
            return made

        harness.listener = with_faults
        self.addCleanup(setattr, harness, "listener", plain)
        return self.envoy(RULES, routes, workers=workers,
                          clusters=[cluster("pay", self.upstream.port), cluster("dead", free_port())])

    def test_each_ending_gives_back_what_was_taken(self):
        for workers in (1, 4):
            running = self.running(workers)

            def ask(path):
                try:
                    return running.get(path)[0]
                except http.client.IncompleteRead:
                    return "broken"

            def leave(path, seconds=0.05):
                client = Client(running.port, path)
                time.sleep(seconds)
                client.leave()

            def tunnel(path):
                client = Client(running.port, path, UPGRADE)
                answer = client.socket.recv(100)
                in_flight = metric(running, "in_flight;rule=pay")
                client.socket.sendall(b"bye")
                client.socket.recv(100)
                client.leave()
                return answer.split()[1], in_flight

            endings = [
                ("answered", lambda: ask("/pay"), 200),
                ("reset before the answer", lambda: ask("/pay/reset"), 503),
                ("reset in the answer", lambda: ask("/pay/broken"), "broken"),
                ("timed out", lambda: ask("/pay/late/hang"), 504),
                ("retried in vain", lambda: ask("/pay/retry/reset"), 503),
                ("retried", lambda: ask("/pay/retry/flaky"), 200),
                ("refused by the upstream's machine", lambda: ask("/dead"), 503),
                ("answered by a filter after", lambda: ask("/after"), 555),
                ("answered by a filter before", lambda: ask("/before"), 555),
                ("answered by Envoy: no route", lambda: ask("/nowhere"), 404),
                ("left before the answer", lambda: leave("/pay/hang"), None),
                ("left with the request", lambda: leave("/pay/hang", 0), None),
                ("a tunnel that the upstream closes", lambda: tunnel("/pay/tunnel"), (b"101", 1)),
                ("a tunnel that the client closes",
                 lambda: (client := Client(running.port, "/pay/tunnel", UPGRADE)).socket.recv(100)[:12] + (client.leave() or b""),
                 b"HTTP/1.1 101"),
            ]
            for how, end, answer in endings:
                with self.subTest(how, workers=workers):
                    for _ in range(5):
                        self.assertEqual(end(), answer)
                        none_in_flight(running, *GAUGES)

    def test_what_is_in_flight_counts_until_it_ends(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                running = self.running(workers)
                clients = [Client(running.port, "/pay/hang") for _ in range(3)]
                eventually("three are in flight", lambda: metric(running, "in_flight;rule=pay") == 3)
                self.assertEqual([running.get(path)[0] for path in ("/pay", "/after", "/nowhere")], [503] * 3)
                clients.pop().leave()
                eventually("one has left", lambda: running.get("/pay")[0] == 200)
                for client in clients:
                    client.leave()
                none_in_flight(running, *GAUGES)
                self.assertEqual(running.get("/after")[0], 555)

    def test_what_is_in_flight_over_a_reload_is_given_back(self):
        running = self.running(4)
        client = Client(running.port, "/pay/hang")
        eventually("it is in flight", lambda: metric(running, "in_flight;rule=pay") == 1)
        self.assertTrue(running.configure({**RULES, "systemRules": [{"maxThread": 2}]}))
        self.assertEqual([metric(running, gauge) for gauge in (GAUGES[0], GAUGES[-1])], [1, 1])
        client.leave()
        none_in_flight(running, *GAUGES)
