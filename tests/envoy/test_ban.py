"""A ban holds for the process: whatever worker a banned client reaches, and whatever the configuration becomes."""

import time

from harness import EnvoyTest, eventually, route
from load import Load, Source

LIMIT, REFUSALS, BAN_SECONDS = 50, 100, 4
KEY = [{"header": "x-api-key"}]
RULES = {
    "flowRules": [{"resource": "api", "count": LIMIT, "key": KEY}],
    "banRules": [{"resource": "api", "key": KEY, "count": REFUSALS, "intervalMs": 60_000, "banSec": BAN_SECONDS, "id": "bans"}],
}


class Ban(EnvoyTest):
    def test_a_banned_client_is_refused_by_all_workers_until_its_time_is_over_and_no_other_client_is(self):
        envoy = self.envoy(RULES, [route("api")], workers=4)
        greedy = Source("/api", connections=32, headers="x-api-key: greedy\r\n")
        calm = Source("/api", connections=4, rate=20, headers="x-api-key: calm\r\n")
        with Load(envoy.port, greedy, calm):
            time.sleep(BAN_SECONDS - 1)
        self.assertEqual(envoy.workers_reached(), 4)
        # The limit of the first second; what its window frees later does not come through.
        self.assertLessEqual(len(greedy.admitted()), LIMIT)
        self.assertGreater(len(greedy.samples), 10 * (LIMIT + REFUSALS), "that was no overload")
        self.assertEqual({sample.status for sample in greedy.samples}, {200, 429})
        self.assertEqual({sample.status for sample in calm.samples}, {200}, "the calm client was disturbed")
        status, headers, _ = envoy.get("/api", {"x-api-key": "greedy"})
        self.assertEqual(status, 429)
        self.assertLessEqual(int(headers["retry-after"]), BAN_SECONDS)
        eventually("the ban is over", lambda: envoy.get("/api", {"x-api-key": "greedy"})[0] == 200)
        self.assertGreater(eventually("it is exported", lambda: envoy.stat("wasmcustom.leapgate.ban_blocked;rule=bans")), 10 * LIMIT)

    def test_an_update_of_the_rules_and_new_virtual_machines_lift_no_ban(self):
        envoy = self.envoy(RULES, [route("api")], workers=2)
        mine = {"x-api-key": "mine"}
        for _ in range(LIMIT + REFUSALS + 5):
            status, headers, _ = envoy.get("/api", mine)
        self.assertEqual(status, 429)
        self.assertGreater(int(headers["retry-after"]), 1, "more than the limit's own time")
        begin = time.monotonic()
        more = {**RULES, "flowRules": RULES["flowRules"] + [{"resource": "other", "count": 1}]}
        self.assertTrue(envoy.configure(more, vm_configuration="another generation"))
        while time.monotonic() < begin + BAN_SECONDS - 2:
            self.assertEqual(envoy.get("/api", mine)[0], 429)
            time.sleep(0.1)
        eventually("the ban is over", lambda: envoy.get("/api", mine)[0] == 200)
