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
    """A Redis whose answers take longer, by `seconds`."""

    def __init__(self, redis):
        self.seconds = 0
        self.command = redis.command
        self._redis_port = redis.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._redis_port))
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
    """Most rules have windows of an hour, whose end a test hardly ever sees."""

    def test_a_service_that_is_gone_refuses_and_one_that_is_back_goes_on(self):
        redis = self.redis()
        service = self.service(redis, descriptor("api", 100_000, "hour"))
        running = self.start(service, leased("api", 100_000, HOUR))
        passed = 0

        def statuses(n):
            nonlocal passed
            found = self.statuses(running, "/api", n)
            passed += found.count(200)
            return found

        def outlasts(begin, end):
            begin()
            eventually("permits are spent", lambda: statuses(5) == [429] * 5)
            end()
            eventually("it passes again", lambda: statuses(1) == [200])

        # On a slow machine, permits may be spent before more have come.
        eventually("permits come as fast as they are spent", lambda: statuses(40) == [200] * 40)

        def restart():
            running.wait_for_log("leapgate: envoy.store: `ratelimit` cannot be reached or has no Redis behind it; start both; until it "
                                 "answers, `whenDown` decides")
            service.start()

        outlasts(service.kill, restart)
        running.wait_for_log("leapgate: envoy.store: `ratelimit` answers again")
        outlasts(service.suspend, service.resume)
        outlasts(redis.suspend, redis.resume)
        # Permits were lost, and none invented.
        [charged] = service.counts().values()
        self.assertLessEqual(passed, charged)
        # This one forgets what it has counted.
        outlasts(redis.kill, redis.start)

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
        running.wait_for_log("leapgate: rule=api;resource=api: envoyproxy/ratelimit has no limit of 1000 per hour in the domain `leapgate` for "
                             "`rule: api`; add it to its configuration")

    def test_a_window_that_the_service_has_not_stays_local(self):
        service = self.service(self.redis(), descriptor("api", 5, "second"))
        running = self.start(service, leased("api", 3, 10), workers=1)
        self.assertEqual(self.statuses(running, "/api", 6), [200] * 3 + [429] * 3)
        running.wait_for_log("leapgate: flowRules[0].clusterMode: `true` needs a window that envoyproxy/ratelimit has, so each node limits "
                             "by itself; use one of a minute, an hour, a day, a week, 30 or 365 days")
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
        """Over the end of a minute: a flood through two Envoys, and in a third a call that is in two minutes."""
        redis = self.redis()
        service = self.service(redis, descriptor("api"))
        two = [self.start(service, leased("api")) for _ in range(2)]
        late_redis = Delay(redis)
        self.addCleanup(late_redis.close)
        late_service = self.service(late_redis, descriptor("late"))
        late = self.start(late_service, leased("late"), workers=1, timeoutMs=3000, maxWaitMs=3000)
        end = (time.time() // MINUTE + 1) * MINUTE
        if end - time.time() < 4:
            end += MINUTE
        sources = [Source("/api", connections=8, rate=300) for _ in two]
        with Load(two[0].port, sources[0]), Load(two[1].port, sources[1]):
            time.sleep(end - time.time() - 0.3)
            late_redis.seconds = 1.0
            status = late.get("/late")[0]
            late_redis.seconds = 0
            time.sleep(end + 8 - time.time())
        # The service has charged the old minute, and has told it as of the new one, since its Redis was late: the permit is dropped.
        self.assertEqual(status, 429)
        charged = {key: n for key, n in service.counts().items() if "late" in key}
        self.assertEqual(charged, {f"leapgate_rule_late_{int(end) - MINUTE}": 1})
        self.assertEqual(late.get("/late")[0], 200)

        offset = time.time() - time.monotonic()
        admitted = [sample for source in sources for sample in source.admitted()]
        for begin in (end - MINUTE - offset, end - offset):
            inside = [sample for sample in admitted if sample.sent >= begin and sample.answered < begin + MINUTE]
            self.assertLessEqual(len(inside), LIMIT)
            self.assertGreater(len(inside), 0.9 * LIMIT)
        calls = sum(running.stat("cluster.ratelimit.upstream_rq_total") for running in two)
        self.assertLess(calls, 0.05 * sum(len(source.samples) for source in sources))
