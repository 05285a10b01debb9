"""Circuit breakers, fed by the answers of an upstream."""

import http.client
import time

import grpc

from endings import UPGRADE, Behaving, Client, Service, metric
from harness import EnvoyTest, cluster, eventually, free_port, route


def rule(grade="errorRatio", count=0.5, **more):
    return {"resource": "pay", "grade": grade, "count": count, "timeWindow": 1, "minRequestAmount": 4,
            "statIntervalMs": 10_000, **more}


class Breakers(EnvoyTest):
    def running(self, *rules, behaving=True, workers=4, settings=None, **how):
        self.upstream = Behaving()
        self.addCleanup(self.upstream.close)
        port = self.upstream.port if behaving else free_port()
        to_pay = {**route("pay", cluster="pay"), **how.pop("more", {})}
        return self.envoy({"degradeRules": list(rules), "envoy": settings or {}}, [to_pay],
                          workers=workers, clusters=[cluster("pay", port)], access_log=True, **how)

    def refused(self, running, path="/pay", times=8):
        """How many of these requests a breaker refused, each on a new connection."""
        return sum("retry-after" in running.get(path)[1] for _ in range(times))

    def state(self, running, name="pay/errorRatio/10s;;2f2f"):
        return metric(running, f"breaker_state;rule={name}")

    def test_it_opens_on_a_failing_upstream_probes_once_and_closes(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                running = self.running(rule(timeWindow=2), workers=workers)
                self.assertEqual(self.refused(running), 0)
                self.upstream.status = 500
                eventually("it opens", lambda: self.refused(running, times=1))
                self.assertEqual(self.state(running), 1)
                asked = self.upstream.requests
                status, headers, body = running.get("/pay")
                self.assertEqual((status, headers["retry-after"], body), (503, "2", b"service unavailable"))
                self.assertEqual(self.refused(running, times=16), 16)
                self.assertEqual(self.upstream.requests, asked, "the upstream has its peace")

                # A probe fails: one request, and the breaker is open again.
                time.sleep(2)
                self.assertEqual(self.refused(running), 7)
                self.assertEqual(self.upstream.requests, asked + 1)

                # A probe succeeds.
                self.upstream.status = 200
                time.sleep(2)
                self.assertEqual(self.refused(running, times=16), 0)
                self.assertEqual(self.state(running), 0)
                self.assertIn("leapgate{rule=pay/errorRatio/10s}", running.access_log.read_text())
                eventually("all refusals are told",
                           lambda: metric(running, "breaker_blocked;rule=pay/errorRatio/10s;;2f2f") >= 25)

    def test_while_a_probe_is_out_all_workers_refuse(self):
        running = self.running(rule())
        self.upstream.status = 500
        eventually("it opens", lambda: self.refused(running, times=1))
        time.sleep(1)
        self.upstream.status, self.upstream.seconds, asked = 200, 0.3, self.upstream.requests
        clients = [Client(running.port, "/pay") for _ in range(32)]
        answers = [int(client.socket.recv(100).split()[1]) for client in clients]
        for client in clients:
            client.leave()
        self.assertEqual(running.workers_reached(), 4)
        self.assertEqual((answers.count(200), answers.count(503)), (1, 31))
        self.assertEqual(self.upstream.requests, asked + 1)

    def test_it_opens_on_a_slow_upstream(self):
        running = self.running(rule("slowRatio", 30, slowRatioThreshold=0.5))
        self.assertEqual(self.refused(running), 0)
        self.upstream.seconds = 0.05
        eventually("it opens", lambda: self.refused(running, times=1))

    def test_it_opens_on_a_dead_upstream(self):
        running = self.running(rule(), behaving=False)
        self.assertEqual(self.refused(running), 4)
        eventually("the access log says why", lambda: "delayed_connect_error" in running.access_log.read_text())

    def test_it_opens_on_an_upstream_that_resets(self):
        for path in ("/pay/reset", "/pay/broken"):
            with self.subTest(path):
                running = self.running(rule(timeWindow=60))

                def ask():
                    try:
                        return running.get(path)[2]
                    except http.client.IncompleteRead:
                        return b"half"

                answers = [ask() for _ in range(8)]
                self.assertEqual(answers.count(b"service unavailable"), 4)

    def test_it_opens_on_a_hanging_upstream_whose_clients_give_up(self):
        running = self.running(rule("slowRatio", 30, slowRatioThreshold=0.5, timeWindow=60))
        for _ in range(4):
            client = Client(running.port, "/pay/hang")
            time.sleep(0.05)
            client.leave()
        eventually("it is open", lambda: self.state(running, "pay/slowRatio/10s;;2f2f") == 1)
        self.assertEqual(self.refused(running), 8)

    def test_it_opens_on_timeouts(self):
        more = {"route": {"cluster": "pay", "timeout": "0.05s"}}
        running = self.running(rule(), more=more)
        self.assertEqual(self.refused(running, "/pay/hang"), 4)

    def test_a_call_that_a_retry_saves_is_not_an_error(self):
        more = {"route": {"cluster": "pay", "retry_policy": {"retry_on": "5xx,reset", "num_retries": 1}}}
        running = self.running(rule(), more=more, workers=1)
        self.assertEqual([running.get("/pay/flaky")[0] for _ in range(12)], [200] * 12)
        self.assertEqual(self.upstream.requests, 24)
        self.assertEqual(metric(running, "breaker_bad;rule=pay/errorRatio/10s;;2f2f;resource=pay;window=errorRatio_10000ms_10"), 0)

    def test_a_client_that_leaves_is_neither_an_error_nor_a_probe(self):
        running = self.running(rule())
        for _ in range(6):
            client = Client(running.port, "/pay/hang")
            time.sleep(0.05)
            client.leave()
        self.assertEqual(self.refused(running), 0)
        self.upstream.status = 500
        eventually("it opens", lambda: self.refused(running, times=1))
        time.sleep(1)
        client = Client(running.port, "/pay/hang")
        eventually("it probes", lambda: self.state(running) == 2)
        client.leave()
        eventually("it is open again", lambda: self.state(running) == 1)
        self.upstream.status = 200
        time.sleep(1)
        self.assertEqual(self.refused(running), 0)

    def test_a_tunnel_is_as_quick_as_its_upgrade(self):
        more = {"route": {"cluster": "pay", "upgrade_configs": [{"upgrade_type": "websocket"}]}}
        running = self.running(rule("slowRatio", 100, slowRatioThreshold=0.5), more=more)
        clients = [Client(running.port, "/pay/tunnel", UPGRADE) for _ in range(6)]
        for client in clients:
            self.assertIn(b" 101 ", client.socket.recv(100))
        time.sleep(0.2)
        for client in clients:
            client.leave()
        self.assertEqual(self.refused(running), 0)

    def test_which_answers_are_errors_can_be_said(self):
        running = self.running(rule(), settings={"errors": {"status": [404]}})
        self.upstream.status = 500
        self.assertEqual(self.refused(running), 0)
        self.upstream.status = 404
        eventually("it opens", lambda: self.refused(running, times=1))

    def test_it_opens_on_grpc_errors_in_headers_in_trailers_and_of_envoys_own(self):
        service = Service()
        self.addCleanup(service.close)
        for method, port in (("Fail", service.port), ("FailLate", service.port), ("Dead", free_port())):
            with self.subTest(method):
                rules = {"degradeRules": [rule()]}
                running = self.envoy(rules, [route("pay", cluster="pay", prefix="/")], access_log=True,
                                     clusters=[cluster("pay", port, http2=True)])
                with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:

                    def ask(method):
                        call = channel.unary_stream(f"/pay/{method}")(b"x", timeout=10)
                        try:
                            list(call)
                        except grpc.RpcError:
                            pass
                        return call.code(), call.details()

                    if port == service.port:
                        self.assertEqual({ask("Ok")[0] for _ in range(6)}, {grpc.StatusCode.OK})
                    eventually("it opens", lambda: ask(method)[1] == "service unavailable")
                    self.assertEqual(ask("Ok"), (grpc.StatusCode.UNAVAILABLE, "service unavailable"))

    def test_a_breaker_in_shadow_refuses_nothing(self):
        running = self.running(rule(mode="shadow", id="dry"))
        self.upstream.status = 500
        self.assertEqual({running.get("/pay")[0] for _ in range(8)}, {500})
        self.assertEqual(self.state(running, "dry"), 1)
        eventually("what it would have refused is told",
                   lambda: metric(running, "breaker_shadow_blocked;rule=dry") == 4)
        self.assertEqual(metric(running, "breaker_blocked;rule=dry"), 0)

    def test_a_reload_keeps_it_open(self):
        running = self.running(rule(timeWindow=60))
        self.upstream.status = 500
        eventually("it opens", lambda: self.refused(running, times=1))
        self.assertTrue(running.configure({"degradeRules": [rule(timeWindow=61)]}))
        self.assertEqual(self.refused(running, times=4), 4)
        # A new virtual machine reads the state from shared data.
        self.assertTrue(running.configure({"degradeRules": [rule(timeWindow=62)]}, vm_configuration="another"))
        self.assertEqual(self.refused(running, times=4), 4)
