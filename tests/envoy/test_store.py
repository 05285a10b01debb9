"""Permits from a real store: Redis behind webdis, and a stand-in for Upstash's REST interface in front of the same Redis."""

import concurrent.futures
import http.client
import time
import unittest

from harness import EnvoyTest, cluster, eventually, route
from stores import Redis, Upstash, Webdis

RULE = {"resource": "hot", "id": "hot", "clusterMode": True, "clusterConfig": {"thresholdType": 1}}
TOKEN = "me:s3cr3t-t0ken"
MINUTE = {"intervalMs": 60_000, "sampleCount": 60}


def document(count, fields=None, **store):
    store = {"cluster": "store", "protocol": "webdis", "timeoutMs": 100, "maxWaitMs": 100, **store}
    return {"flowRules": [{**RULE, "count": count, **(fields or {})}], "envoy": {"store": store}}


class Store(EnvoyTest):
    def redis(self, age=0, **how):
        redis = Redis(**how)
        self.addCleanup(redis.close)
        if age:
            redis.wait_for_age(age)
        return redis

    def webdis(self, redis, **how):
        webdis = Webdis(redis, **how)
        self.addCleanup(webdis.close)
        return webdis

    def start(self, store, rules, **how):
        return self.envoy(rules, [route("hot")], clusters=[cluster("store", store.port)], **how)

    def statuses(self, envoy, n, at_once=8):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return [answer[0] for answer in pool.map(lambda _: envoy.get("/hot"), range(n))]

    def passes(self, envoy, n):
        return self.statuses(envoy, n).count(200)

    def metric(self, envoy, what):
        return envoy.stat(f"wasmcustom.leapgate.{what};rule=hot")

    def warnings(self, envoy):
        return sorted({line.rsplit("leapgate: ", 1)[1] for line in envoy.log().splitlines() if "[warning][wasm]" in line})

    def test_two_envoys_share_one_limit_and_hardly_ask(self):
        redis = self.redis(age=3)
        webdis = self.webdis(redis, token=TOKEN)
        rules = document(10_000, token=TOKEN, timeoutMs=1000, maxWaitMs=1000)
        envoys = [self.start(webdis, rules) for _ in range(2)]
        asked = 0
        for envoy in envoys * 10:
            asked += 80
            self.assertEqual(self.passes(envoy, 80), 80)
        self.assertEqual(self.warnings(envoys[0]), [])
        # Requests were paused and resumed, and most of them found permits.
        self.assertLess(redis.calls(), asked * 0.8)
        self.assertGreater(self.metric(envoys[0], "lease_asks"), 0)
        self.assertGreater(self.metric(envoys[1], "lease_granted"), 0)

    def test_together_they_pass_the_limit_and_no_more(self):
        redis = self.redis()
        webdis = self.webdis(redis)
        envoys = [self.start(webdis, document(40, {"intervalMs": 2000, "sampleCount": 20})) for _ in range(2)]
        redis.wait_for_age(4)
        passed = sum(self.passes(envoy, 60) for envoy in envoys for _ in range(2))
        self.assertLessEqual(passed, 40)
        self.assertGreaterEqual(passed, 36)
        calls = redis.calls()
        # What is known to be refused does not reach the store.
        for envoy in envoys:
            self.passes(envoy, 100)
        self.assertLess(redis.calls() - calls, 40)

    def test_upstash_is_asked_in_its_own_form(self):
        redis = self.redis(age=3)
        with Upstash(redis, "t0p-secret") as upstash:
            envoy = self.start(upstash, document(100, protocol="upstash", token="t0p-secret", timeoutMs=1000, maxWaitMs=1000))
            self.assertEqual(self.passes(envoy, 20), 20)
            commands = [command[0] for command in upstash.asked]
            self.assertIn("EVAL", commands)
            self.assertEqual(commands[-1], "EVALSHA")
            self.assertNotIn("t0p-secret", envoy.log())
            upstash.answer = (401, {"error": "Unauthorized"})
            eventually("the store refuses", lambda: envoy.get("/hot")[0] == 429)
            eventually("the log says it", lambda: "`Unauthorized` is the store's error" in envoy.log())

    def test_each_failure_is_one_sentence_and_whenDown_decides_until_the_store_is_back(self):
        redis = self.redis(age=3)
        webdis = self.webdis(redis)
        envoy = self.start(webdis, document(1000), workers=1)
        said = "; until it answers, `whenDown` decides"
        self.assertEqual(self.passes(envoy, 10), 10)

        def fails(sentence):
            eventually("requests are refused", lambda: envoy.get("/hot")[0] == 429)
            line = f"envoy.store: `store` {sentence}{said}"
            eventually(line, lambda: (envoy.get("/hot"), line in self.warnings(envoy))[1])
            self.statuses(envoy, 50)
            # On a slow machine, the store may have failed by itself before.
            since_it_answered = envoy.log().rpartition("answers again")[2]
            self.assertEqual(since_it_answered.count(f"{line}\n"), 1, envoy.log())

        def recovers():
            eventually("requests pass again", lambda: envoy.get("/hot")[0] == 200)
            envoy.wait_for_log("envoy.store: `store` answers again")

        redis.suspend()
        fails("does not answer in time; look at its load and at `timeoutMs`")
        redis.resume()
        recovers()
        webdis.kill()
        fails("cannot be reached or has no Redis behind it; start both")
        webdis.start()
        recovers()
        eventually("each outage has its end", lambda: self.metric(envoy, "lease_downs") == self.metric(envoy, "lease_ups"))
        self.assertGreater(self.metric(envoy, "lease_lost"), 0)
        self.assertGreater(self.metric(envoy, "lease_down_ms"), 0)

    def test_a_redis_that_is_killed_and_comes_back_empty(self):
        redis = self.redis(age=3)
        webdis = self.webdis(redis)
        envoy = self.start(webdis, document(1000), workers=1)
        self.assertEqual(self.passes(envoy, 10), 10)
        redis.kill()
        eventually("requests are refused", lambda: envoy.get("/hot")[0] == 429)
        redis.start()
        # A missing key counts as full until a window and a lease are over; then the script is sent anew.
        eventually("requests pass again", lambda: envoy.get("/hot")[0] == 200)
        self.assertGreaterEqual(int(redis.info()["uptime_in_seconds"]), 1)

    def test_whenDown_local_and_pass(self):
        for when_down, least, most in (("local", 50, 50), ("pass", 100, 100)):
            with self.subTest(when_down):
                envoy = self.start(self.webdis(self.redis()), document(50, MINUTE, whenDown=when_down, cluster="elsewhere"), workers=1)
                passed = self.passes(envoy, 100)
                self.assertTrue(least <= passed <= most, passed)
                line = ("envoy.store: `elsewhere` is not a cluster; add it to Envoy's clusters or correct `cluster`; until it answers, "
                        "`whenDown` decides")
                self.assertEqual(self.warnings(envoy), [line])

    def test_a_wrong_password_at_redis_and_at_webdis(self):
        for how, token, sentence in (
                ({"password": "wrong"}, None, "`NOAUTH Authentication required.` is the store's error; look at its settings"),
                ({"token": TOKEN}, "me:wr0ng", "`store` refuses the request; correct `token` and allow EVAL and EVALSHA")):
            with self.subTest(sentence):
                redis = self.redis(password="right")
                webdis = self.webdis(redis, **how)
                envoy = self.start(webdis, document(50, **({"token": token} if token else {})), workers=1)
                self.assertEqual(self.passes(envoy, 20), 0)
                self.assertEqual(self.warnings(envoy), [f"envoy.store: {sentence}; until it answers, `whenDown` decides"])
                self.assertNotIn(token or "wrong", envoy.log())

    def test_a_client_that_leaves_takes_nothing_with_it(self):
        redis = self.redis(age=3)
        webdis = self.webdis(redis)
        envoy = self.start(webdis, document(1000, timeoutMs=2000, maxWaitMs=2000), workers=1)
        redis.suspend()
        connection = http.client.HTTPConnection("127.0.0.1", envoy.port)
        connection.request("GET", "/hot")
        eventually("the call is on its way", lambda: envoy.stat("cluster.store.upstream_rq_active") == 1)
        connection.close()
        eventually("the client has left", lambda: envoy.stat("http.edge.downstream_rq_active") == 0)
        redis.resume()
        self.assertEqual(envoy.get("/hot")[0], 200)

    def test_the_worker_sleeps_when_its_leases_are_given_back(self):
        redis = self.redis(age=3)
        webdis = self.webdis(redis)
        envoy = self.start(webdis, document(1000))
        self.assertEqual(self.passes(envoy, 100), 100)

        def is_quiet():
            calls = redis.calls()
            time.sleep(0.6)
            return redis.calls() == calls

        eventually("all is given back", lambda: self.metric(envoy, "lease_permits") == 0)
        eventually("the store is asked no more", is_quiet)
        self.assertEqual(self.metric(envoy, "lease_permits"), 0)


if __name__ == "__main__":
    unittest.main()
