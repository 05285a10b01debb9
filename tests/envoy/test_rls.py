"""Permits that are leased from a real envoyproxy/ratelimit, which counts in the windows of its clock."""

import socket
import threading
import time

from harness import EnvoyTest, cluster, eventually, route
from load import Load, Source
from stores import Ratelimit, Redis

MINUTE, HOUR = 60, 3600
LIMIT = 1000


class Delay:
    """A way to a server on which answers take longer by `seconds`."""

    def __init__(self, port):
        self.seconds = 0
        self.server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                self._sockets += [client, server]
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._carry, args=(source, target, is_answer), daemon=True).start()
        except OSError:
            pass  # closed

    def _carry(self, source, target, is_answer):
        try:
            while data := source.recv(65536):
                if is_answer and self.seconds:
                    time.sleep(self.seconds)
                target.sendall(data)
        except OSError:
            pass  # closed

    def close(self):
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed, or listens
            each.close()


def leased(rule, count=LIMIT, seconds=MINUTE, **fields):
    return {"resource": rule, "id": rule, "count": count, "intervalMs": seconds * 1000, "clusterMode": True,
            "clusterConfig": {"thresholdType": 1}, **fields}


def descriptor(rule, count=LIMIT, unit="minute"):
    return {"key": "rule", "value": rule, "rate_limit": {"unit": unit, "requests_per_unit": count}}


def store(**fields):
    return {"envoy": {"store": {"cluster": "ratelimit", "protocol": "rls", **fields}}}


class Rls(EnvoyTest):
    def redis(self):
        redis = Redis()
        self.addCleanup(redis.close)
        return redis

    def service(self, redis, *descriptors):
        service = Ratelimit(redis, list(descriptors))
        self.addCleanup(service.close)
        return service

    def start(self, service, *rules, workers=2, port=None, **fields):
        """An Envoy that leases for these rules, each of which has a route."""
        names = [rule["resource"] for rule in rules]
        clusters = [cluster("ratelimit", port or service.port, http2=True)]
        return self.envoy({"flowRules": list(rules), **store(**fields)}, [route(name) for name in names], workers=workers,
                          clusters=clusters)

    def statuses(self, running, path, n):
        return [running.get(path)[0] for _ in range(n)]


class Faults(Rls):
    """Times without the service: rules of an hour, whose window no test sees the end of, but for one in some hundred runs."""

    def passes_again(self, running):
        eventually("it passes again", lambda: running.get("/api")[0] == 200)

    def is_refused(self, running):
        eventually("permits are spent", lambda: self.statuses(running, "/api", 5) == [429] * 5)

    def test_a_service_that_is_gone_refuses_and_one_that_is_back_goes_on(self):
        redis = self.redis()
        service = self.service(redis, descriptor("api", 100_000, "hour"))
        running = self.start(service, leased("api", 100_000, HOUR))
        passed = 0

        def count(statuses):
            nonlocal passed
            passed += statuses.count(200)
            return statuses

        faults = [
            (service.kill, service.start, "`ratelimit` cannot be reached or has no Redis behind it; start both"),
            (service.suspend, service.resume, None),
            (redis.suspend, redis.resume, None),
        ]
        self.assertEqual(set(count(self.statuses(running, "/api", 40))), {200})
        for begin, end, sentence in faults:
            with self.subTest(begin):
                begin()
                eventually("permits are spent", lambda: count(self.statuses(running, "/api", 5)) == [429] * 5)
                if sentence:
                    running.wait_for_log(f"leapgate: envoy.store: {sentence}; until it answers, `whenDown` decides")
                end()
                eventually("it passes again", lambda: count(self.statuses(running, "/api", 1)) == [200])
        # Each request that passed was counted: permits were lost, and none invented.
        [charged] = service.counts().values()
        self.assertLessEqual(passed, charged)
        self.assertGreater(passed, 40)
        # With its Redis its counts are gone.
        redis.kill()
        self.is_refused(running)
        redis.start()
        self.passes_again(running)

    def test_a_rule_that_the_service_does_not_know_is_said_once_and_left_to_when_down(self):
        service = self.service(self.redis(), descriptor("api", 500))
        for when_down, status in (("refuse", 429), ("pass", 200)):
            running = self.start(service, leased("new"), workers=1, whenDown=when_down)
            self.assertEqual(set(self.statuses(running, "/new", 20)), {status})
            sentence = ("leapgate: envoy.store: envoyproxy/ratelimit has no limit of 1000 per minute in the domain `leapgate` for "
                        "`rule: new`; add it to its configuration; until it answers, `whenDown` decides")
            running.wait_for_log(sentence)
            self.assertEqual(running.log().count("has no limit of"), 1)

    def test_another_number_at_the_service_holds_and_is_said(self):
        service = self.service(self.redis(), descriptor("api", 30, "hour"))
        running = self.start(service, leased("api", 1000, HOUR), workers=1)
        self.assertLessEqual(self.statuses(running, "/api", 60).count(200), 30)
        running.wait_for_log("leapgate: rule=api: envoyproxy/ratelimit has no limit of 1000 per hour in the domain `leapgate` for "
                             "`rule: api`; add it to its configuration")

    def test_a_window_that_the_service_has_not_stays_local(self):
        service = self.service(self.redis(), descriptor("api", 5, "second"))
        running = self.start(service, leased("api", 3, 10), workers=1)
        self.assertEqual(self.statuses(running, "/api", 6), [200] * 3 + [429] * 3)
        running.wait_for_log("leapgate: rule=api: envoyproxy/ratelimit has no windows of its length, only of a minute, an hour, a day, "
                             "a week, 30 and 365 days")
        self.assertEqual(service.counts(), {})

    def test_keys_have_limits_of_their_own_and_their_parts_are_entries(self):
        nested = {"key": "rule", "value": "login", "descriptors": [
            {"key": "clientIp", "descriptors": [
                {"key": "header:x-user", "rate_limit": {"unit": "hour", "requests_per_unit": 4}},
                {"key": "header:x-user", "value": "a:b", "rate_limit": {"unit": "hour", "requests_per_unit": 7}}]}]}
        service = self.service(self.redis(), nested)
        key = ["clientIp", {"header": "x-user"}]
        running = self.start(service, leased("login", 4, HOUR, key=key), workers=1)
        for user, most in (("ann", 4), ("a:b", 7), (None, 4)):
            headers = {"x-user": user} if user else {}
            passed = [running.get("/login", headers)[0] for _ in range(10)].count(200)
            self.assertLessEqual(passed, most)
            self.assertGreaterEqual(passed, most - 2)
        counted = {key.rsplit("_", 1)[0] for key in service.counts()}
        self.assertEqual(counted, {f"leapgate_rule_login_clientIp_127.0.0.1_header:x-user_{user}" for user in ("ann", "a:b", "%")})


class Windows(Rls):
    def test_no_window_of_the_service_has_more_than_the_limit(self):
        """Across the end of a minute: a flood through two Envoys, and in a third a call that straddles the end."""
        redis = self.redis()
        service = self.service(redis, descriptor("api"))
        two = [self.start(service, leased("api")) for _ in range(2)]
        way = Delay(redis.port)
        self.addCleanup(way.close)
        slow_service = self.service(type("Way", (), {"port": way.port, "command": redis.command}), descriptor("slow"))
        slow = self.start(slow_service, leased("slow"), workers=1, timeoutMs=3000, maxWaitMs=3000)
        # It knows when this minute began, but not exactly when it ends.
        end = (time.time() // MINUTE + 1) * MINUTE
        end += MINUTE if end - time.time() < 3 else 0
        offset = time.time() - time.monotonic()
        sources = [Source("/api", connections=8, rate=300) for _ in two]
        straddling = []
        with Load(two[0].port, sources[0]), Load(two[1].port, sources[1]):
            time.sleep(max(end - time.time() - 0.3, 0))
            way.seconds = 1.0
            straddling.append(slow.get("/slow")[0])
            answered = time.time()
            way.seconds = 0
            time.sleep(max(end + 8 - time.time(), 0))
        # The service picked the old window, and its answer came in the new one, as of that: the permit was not spent.
        self.assertTrue(end < answered < end + 2, answered - end)
        self.assertEqual(straddling, [429])
        old = f"leapgate_rule_slow_{int(end) - MINUTE}"
        self.assertEqual({key: n for key, n in service.counts().items() if "slow" in key}, {old: 1})
        self.assertEqual(slow.get("/slow")[0], 200)
        admitted = [sample for source in sources for sample in source.admitted()]
        for begin in (end - MINUTE, end):
            inside = [sample for sample in admitted
                      if sample.sent + offset >= begin and sample.answered + offset < begin + MINUTE]
            self.assertLessEqual(len(inside), LIMIT)
            print(begin - end, len(inside), service.counts())
        for source in sources:
            self.assertEqual(source.lost, 0)
        calls = sum(running.stat("cluster.ratelimit.upstream_rq_total") for running in two)
        print(calls, sum(len(source.samples) for source in sources))
