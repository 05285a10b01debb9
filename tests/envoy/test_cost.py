"""Costs that are known only at the end, judged by the log of the upstream that causes them."""

import bisect
import itertools
import random
import re
import threading
import time
import unittest

from completions import TOKEN_USAGE, Completion, Completions, open_chat
from endings import Client, metric
from harness import EnvoyTest, cluster, eventually, free_port, route
from test_endings import fault

LIMIT = 20_000
SECONDS = 2

#: How requests estimate what they will cost: no more than half of the limit, as by default.
ESTIMATE = {"header": "x-max-tokens", "default": 2000}
TOTAL = {"typedMetadata": ["envoy.ai.token_usage", "total_tokens"]}


def tokens(resource="chat", count=LIMIT, seconds=60, **fields):
    """A limit on tokens, which is called like its resource."""
    cost = {"estimate": ESTIMATE, "actual": TOTAL, **fields}
    return {"resource": resource, "id": resource, "unit": "tokens", "count": count, "intervalMs": seconds * 1000, "cost": cost}


def most_in_any_interval(log, seconds):
    """The largest number of tokens of requests that ran in one closed interval of that length."""
    begins = sorted((one.began, one.tokens) for one in log)
    ends = sorted((one.ended, one.tokens) for one in log)
    begun = [0, *itertools.accumulate(tokens for _, tokens in begins)]
    ended = [0, *itertools.accumulate(tokens for _, tokens in ends)]
    # The best interval begins where a request ends; those that have ended before then do not run in it.
    return max((begun[bisect.bisect_right(begins, (end + seconds, float("inf")))] - ended[bisect.bisect_left(ends, (end, 0))]
                for end, _ in ends), default=0)


class Judge(unittest.TestCase):
    def test_it_agrees_with_trying_every_interval(self):
        draw = random.Random(1)
        for _ in range(300):
            starts = [draw.randrange(40) for _ in range(draw.randrange(1, 30))]
            log = [Completion("", start, start + draw.randrange(15), draw.randrange(9)) for start in starts]
            for seconds in (0, 1, 5, 10):
                naive = max(sum(one.tokens for one in log if one.began <= begin + seconds and one.ended >= begin)
                            for begin in [one.ended for one in log])
                self.assertEqual(most_in_any_interval(log, seconds), naive, (log, seconds))


class Costs(EnvoyTest):
    def completions(self):
        upstream = Completions()
        self.addCleanup(upstream.close)
        return upstream

    def running(self, rules, upstream, workers=1, **how):
        names = sorted({rule["resource"] for rule in rules})
        how = {"before": [TOKEN_USAGE], **how}
        return self.envoy({"flowRules": rules}, [route(name, cluster="up") for name in names], workers=workers,
                          clusters=[cluster("up", upstream.port)], **how)

    def counted(self, running, rule, seconds=60):
        """What counts of a rule, and what is held beside it."""
        name = f"rule={rule};window={seconds * 1000}ms_100"
        # They begin with the first request.
        admitted, reserved = (metric(running, f"{what};{name}") or 0 for what in ("admitted", "tickets"))
        return admitted, reserved - admitted


class Endings(Costs):
    """What each ending is charged: by the order of filters, by the number of workers."""

    #: A limit for each way to read a cost, which is never reached.
    RULES = [
        tokens("total", count=10**9),
        tokens("weighted", count=10**9,
               actual={"typedMetadata": ["envoy.ai.token_usage"], "weights": {"input": 1, "cached": 0.1, "output": 4}}),
        tokens("bytes", count=10**9, missing="bytes"),
        tokens("free", count=10**9, missing=0),
        tokens("header", count=10**9, actual={"header": "x-cost"}),
        tokens("trailer", count=10**9, actual={"trailer": "x-cost"}),
        tokens("received", count=10**9, actual={"bytes": "received"}),
        tokens("sent", count=10**9, actual={"bytes": "sent"}),
        tokens("status", count=10**9, actual={"status": ["401", "5xx"]}),
        *(tokens(name, count=10**9) for name in ("dead", "full", "empty", "late", "after", "direct", "retry")),
    ]

    def routes(self):
        full, empty = cluster("full", self.upstream.port), cluster("empty", free_port())
        full["circuit_breakers"] = {"thresholds": [{"max_requests": 0, "max_pending_requests": 0}]}
        empty["load_assignment"]["endpoints"] = []
        own = {"dead": "dead", "full": "full", "empty": "empty", "direct": None, "retry": "dead"}
        routes = [route(rule["resource"], cluster=own.get(rule["resource"], "up")) for rule in self.RULES]
        for one in routes:
            if one["name"] == "late":
                one["route"]["timeout"] = "0.2s"
            if one["name"] == "retry":
                one["route"]["retry_policy"] = {"retry_on": "connect-failure", "num_retries": 2}
        up = cluster("up", self.upstream.port)
        up["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http_protocol_options": {"enable_trailers": True}},
        }}
        return routes, [up, cluster("dead", free_port()), full, empty]

    def settles(self, workers, **around):
        self.upstream = self.completions()
        routes, clusters = self.routes()
        running = self.envoy({"flowRules": self.RULES}, routes, workers=workers, clusters=clusters, **around)

        def get(path, **how):
            try:
                return running.get(path, {"x-max-tokens": "700"}, **how)[0]
            except Exception as broken:
                return type(broken).__name__

        def post(path):
            return get(path, body="x" * 1000)

        def leave(path):
            client = Client(running.port, path, "x-max-tokens: 700\r\n")
            time.sleep(0.15)
            client.leave()

        usage = "?input=100&output=50&cached=30"
        rows = [
            # what the client does, the answer, what is charged, whether the cost was missing
            (get, f"/total{usage}", 200, 150, 0),
            (get, f"/total{usage}&as=json", 200, 150, 0),
            (get, "/total?input=100&output=50&as=anthropic", 200, 150, 0),
            (get, f"/total{usage}&usage=no", 200, 700, 1),
            (get, f"/total{usage}&usage=text", 200, 700, 1),
            (get, f"/total{usage}&status=500", 500, 700, 1),
            (get, f"/total{usage}&end=reset", "IncompleteRead", 700, 1),
            (get, f"/total{usage}&end=half", "IncompleteRead", 700, 1),
            (leave, f"/total{usage}&seconds=0.5", None, 700, 1),
            (leave, f"/total{usage}&seconds=0.5&as=json", None, 700, 1),
            (get, f"/weighted{usage}", 200, 273, 0),
            (get, f"/weighted{usage}&as=anthropic", 200, 100 + 3 + 200, 0),  # cached tokens come beside the others there
            (get, f"/weighted{usage}&usage=no", 200, 700, 1),
            (get, "/bytes?usage=no&as=json", 200, 18, 1),  # 69 bytes
            (get, "/free?usage=no", 200, 0, 1),
            (get, "/header?cost=17", 200, 17, 0),
            (get, "/header?cost=17.1&end=half", "IncompleteRead", 18, 0),
            (get, "/header?cost=1e400", 200, 700, 1),
            (get, "/header?cost=-1", 200, 700, 1),
            (get, "/header", 200, 700, 1),
            (get, "/trailer?trailer=18", 200, 18, 0),
            (get, "/trailer?cost=18", 200, 700, 1),
            (post, "/received?as=json", 200, 1000, 0),
            (get, "/sent?usage=no&as=json", 200, 69, 0),
            (get, "/status?status=401&as=json", 401, 1, 0),
            (get, "/status?as=json", 200, 0, 0),
            (leave, "/status?seconds=0.5&as=json", None, 700, 1),
            (get, "/dead", 503, 0, 0),
            (get, "/retry", 503, 0, 0),
            (get, "/full", 503, 0, 0),
            (get, "/empty", 503, 0, 0),
            (get, "/after", 555, 0, 0),
            (get, "/direct", 200, 0, 0),
            (get, "/late?seconds=1&as=json", 504, 700, 1),
        ]
        for ask, path, answer, charged, missing in rows:
            rule = re.match(r"/(\w+)", path)[1]
            with self.subTest(f"{ask.__name__} {path}", workers=workers):
                def counts():
                    return metric(running, f"cost_missing;rule={rule}") or 0

                before, missed = self.counted(running, rule)[0], counts()
                self.assertEqual(ask(path), answer)
                eventually("nothing is held", lambda: self.counted(running, rule)[1] == 0)
                self.assertEqual(self.counted(running, rule)[0] - before, charged)
                self.assertEqual(counts() - missed, missing)

    def test_each_ending_is_charged_with_the_usage_before_the_filter(self):
        for workers in (1, 4):
            self.settles(workers, before=[TOKEN_USAGE], after=[fault("after", "/after")])

    def test_each_ending_is_charged_with_the_usage_behind_the_filter(self):
        self.settles(1, after=[fault("after", "/after"), TOKEN_USAGE])


class Limits(Costs):
    def crowd(self, running, resource, seconds, plan, clients=100):
        """Clients that chat without a pause, as `plan` draws it, for so long; returns how many of them were refused."""
        end, refused = time.monotonic() + seconds, []

        def client(seed):
            draw = random.Random(seed)
            while time.monotonic() < end:
                query, estimate, leaves = plan(draw)
                status = open_chat(running.port, f"/{resource}?{query}", {"x-max-tokens": estimate}, leaves)
                if status == 429:
                    refused.append(time.monotonic())
                    time.sleep(0.05)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(refused)

    def test_never_more_settled_and_held_than_the_limit_in_any_interval(self):
        """Beside it, in the same round, the same requests charged after the fact, as everybody does."""
        def plan(draw):
            read, written = draw.randrange(50, 200), draw.randrange(10, 700)
            end = draw.choice(["", "", "", "&usage=no", "&end=reset", "&end=half"])
            estimate = read + written + draw.randrange(300)
            return f"input={read}&output={written}&seconds={draw.uniform(0.05, 0.6):.2f}{end}", estimate, draw.random() < 0.1

        for workers in (1, 4):
            with self.subTest(workers=workers):
                upstream = self.completions()
                # A rule that holds 1 of 20,000 charges nothing that matters before the end.
                rules = [tokens("chat", seconds=SECONDS), tokens("later", seconds=SECONDS, estimate=1)]
                running = self.running(rules, upstream, workers)
                refused = {}
                threads = [threading.Thread(target=lambda name=name: refused.update({name: self.crowd(running, name, 8, plan, 50)}))
                           for name in ("chat", "later")]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                for name in ("chat", "later"):
                    eventually("nothing is held", lambda: self.counted(running, name, SECONDS)[1] == 0)
                most = {name: most_in_any_interval([one for one in upstream.log if one.path.startswith(f"/{name}")], SECONDS)
                        for name in ("chat", "later")}
                total = sum(one.tokens for one in upstream.log if one.path.startswith("/chat"))
                print(f"\n{workers} workers, {LIMIT} tokens in {SECONDS} s: held and settled at most {most['chat']}, "
                      f"charged after the fact {most['later']}, in any interval; refused {refused}; {total} tokens in all")
                self.assertEqual(running.workers_reached(), workers)
                self.assertLessEqual(most["chat"], LIMIT)
                self.assertGreater(total, 2 * LIMIT, "that was no load")
                self.assertGreater(refused["chat"], 0)
                self.assertGreater(most["later"], LIMIT, "charging after the fact overshoots")

    def test_a_hundred_requests_at_once_never_cost_more_than_the_tokens_of_a_minute(self):
        """Of a hundred at once, as many pass as the limit has room for; charged after the fact, all of them."""
        for workers in (1, 4):
            with self.subTest(workers=workers):
                upstream = self.completions()
                running = self.running([tokens("chat"), tokens("later", estimate=1)], upstream, workers)
                for name in ("chat", "later"):
                    threads = [threading.Thread(target=open_chat, args=(running.port, f"/{name}?input=200&output=800&seconds=0.5",
                                                                        {"x-max-tokens": 1000})) for _ in range(100)]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                    eventually("nothing is held", lambda: self.counted(running, name)[1] == 0)
                passed = {name: sum(one.tokens for one in upstream.log if one.path.startswith(f"/{name}")) for name in ("chat", "later")}
                print(f"\n{workers} workers, {LIMIT} tokens a minute, 100 requests of 1000 at once: held and settled {passed['chat']}, "
                      f"charged after the fact {passed['later']}")
                self.assertEqual(passed, {"chat": LIMIT, "later": 100_000})
                self.assertEqual(self.counted(running, "chat")[0], LIMIT)
                self.assertEqual(metric(running, "debt;rule=later"), 100_000 - 100)

    def test_what_requests_cost_beyond_their_estimates_is_shown_and_blocks(self):
        upstream = self.completions()
        running = self.running([tokens("chat", count=1000, seconds=SECONDS)], upstream, 4)
        chat = {"x-max-tokens": 100}
        self.assertEqual(open_chat(running.port, "/chat?input=1000&output=1500", chat), 200)
        settled = time.monotonic()
        eventually("it is settled", lambda: self.counted(running, "chat", SECONDS) == (2500, 0))
        self.assertEqual(metric(running, "debt;rule=chat"), 2400)
        self.assertEqual(open_chat(running.port, "/chat?output=1", chat), 429)
        eventually("the debt has left the window", lambda: open_chat(running.port, "/chat?output=1", chat) == 200, 2 * SECONDS)
        self.assertGreaterEqual(time.monotonic() - settled, 0.99 * SECONDS)

    def test_no_more_than_what_requests_were_underestimated_by_is_spent_beyond_the_limit(self):
        upstream = self.completions()
        running = self.running([tokens("chat", seconds=SECONDS)], upstream, 4)

        def plan(draw):
            written = draw.randrange(100, 1000)
            return f"output={written}&seconds={draw.uniform(0.05, 0.4):.2f}", max(1, written - draw.randrange(200)), False

        self.crowd(running, "chat", 6, plan, 50)
        eventually("nothing is held", lambda: self.counted(running, "chat", SECONDS)[1] == 0)
        most, debt = most_in_any_interval(upstream.log, SECONDS), metric(running, "debt;rule=chat")
        # In an interval, at most 200 for each request in flight.
        print(f"\n{most} of {LIMIT} tokens, with {debt} of debt in all")
        self.assertGreater(debt, 0)
        self.assertLessEqual(most, LIMIT + 50 * 200)


class Logins(Costs):
    def test_five_wrong_passwords_a_minute_and_right_ones_are_free(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                rule = {"resource": "login", "id": "login", "count": 5, "intervalMs": 60_000, "key": [{"header": "x-client"}],
                        "cost": {"actual": {"status": ["401", "403"]}}}
                running = self.running([rule], self.completions(), workers)

                def logins(client, *statuses):
                    def login(status):
                        answer = running.get(f"/login?as=json&status={status}", {"x-client": client})[0]
                        time.sleep(0.02)  # the answer has come a moment before its stream is deleted
                        return answer

                    return [login(status) for status in statuses]

                self.assertEqual(logins("alice", *[200] * 20), [200] * 20)
                attempts = (401, 200, 403, 401, 200, 401, 200, 401)
                for client in ("alice", "bob"):
                    self.assertEqual(logins(client, *attempts), list(attempts))
                    self.assertEqual(logins(client, 401, 200), [429, 429])
                self.assertEqual(logins("carol", 200), [200])
