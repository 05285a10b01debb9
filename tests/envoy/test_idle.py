"""What an idle Envoy costs."""

import time
import unittest

from harness import EnvoyTest, eventually, route

WORKERS = 4
ROUNDS = 3
SECONDS = 1

ONE = {"flowRules": [{"resource": "hot", "count": 100_000}]}
MANY = {"flowRules": [{"resource": f"r{n}", "count": 1} for n in range(999)] + ONE["flowRules"]}
# A breaker, averages, and a window for each client.
ALL_KINDS = {
    "flowRules": ONE["flowRules"] + [{"resource": "hot", "count": 100_000, "key": ["clientIp"]}],
    "degradeRules": [{"resource": "hot", "grade": "errorRatio", "count": 0.5, "timeWindow": 1}],
    "systemRules": [{"qps": 100_000, "avgRt": 10_000, "bbr": True, "mode": "shadow"}],
}


class Idle(EnvoyTest):
    def busy_once(self, rules):
        """An Envoy whose workers have all had requests."""
        running = self.envoy(rules, [route("hot")], workers=WORKERS)

        def ask():
            for _ in range(20):
                self.assertEqual(running.get("/hot")[0], 200)
            return running.workers_reached() == WORKERS

        eventually("every worker has had a request", ask)
        return running

    def idle(self, running):
        """Milliseconds of CPU a second without requests."""
        begin, before = time.monotonic(), running.cpu_seconds()
        time.sleep(SECONDS)
        return (running.cpu_seconds() - before) * 1000 / (time.monotonic() - begin)

    def test_it_costs_as_little_as_without_the_filter(self):
        running = {name: self.busy_once(rules) for name, rules in
                   (("without", None), ("1 rule", ONE), ("1,000 rules", MANY), ("all kinds", ALL_KINDS))}
        time.sleep(0.5)
        # Other work on the machine can make it more, never less.
        rounds = [{name: self.idle(envoy) for name, envoy in running.items()} for _ in range(ROUNDS)]
        idle = {name: min(costs[name] for costs in rounds) for name in running}
        print({name: f"{cost:.2f} ms/s" for name, cost in idle.items()}, end=" ", flush=True)
        for name in idle:
            self.assertLess(idle[name], idle["without"] + 1.5, f"{name}: {idle}")


if __name__ == "__main__":
    unittest.main()
