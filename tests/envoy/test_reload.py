"""Updates under load: no configuration push may hand out a fresh window."""

import time

from harness import EnvoyTest, eventually, route
from load import Load, Source, most_in_any_window

LIMIT = 200
HOT = {"resource": "hot", "count": LIMIT}


class Reload(EnvoyTest):
    def setUp(self):
        self.hot = Source("/hot", connections=32)
        self.running = self.envoy({"flowRules": [HOT]}, [route("hot")], workers=4)

    def load(self):
        return Load(self.running.port, self.hot)

    def updates_keep_the_window(self, update, seconds=4):
        """Many updates, each at another place of the window; returns how many."""
        updates = 0
        with self.load():
            begin = time.monotonic()
            while time.monotonic() < begin + seconds:
                updates += 1
                self.assertTrue(update(updates), self.running.log()[-2000:])
                time.sleep(0.1)
            took = time.monotonic() - begin
        self.assertGreaterEqual(updates, 5)
        self.assertGreaterEqual(len(self.hot.samples), 5 * LIMIT * took, "that was no overload")
        self.assertLessEqual(most_in_any_window(self.hot.admitted(), 1.0), LIMIT)
        self.assertGreaterEqual(len(self.hot.admitted()), 0.9 * LIMIT * took, "the window stayed open as well")
        return updates

    def test_a_rule_inserted_before_the_others_keeps_the_window(self):
        def insert(i):
            return self.running.configure({"flowRules": [{"resource": f"new-{j}", "count": 1} for j in range(i)] + [HOT]})

        self.updates_keep_the_window(insert)

    def test_a_rule_added_to_the_same_route_keeps_the_window(self):
        def add(i):
            return self.running.configure({"flowRules": [{**HOT, "id": f"wide-{i}", "count": 10 * LIMIT}, HOT]})

        self.updates_keep_the_window(add)

    def test_new_vms_keep_the_window(self):
        def renew(i):
            return self.running.configure({"flowRules": [HOT]}, vm_configuration=f"generation {i}")

        self.updates_keep_the_window(renew)

    def change_count(self, count):
        """Load under the old limit, then under the new one."""
        with self.load():
            time.sleep(1.5)
            self.assertTrue(self.running.configure({"flowRules": [{**HOT, "count": count}]}))
            # Connections on the old listener drain for one second, and then are closed.
            time.sleep(2.5)
            settled = time.monotonic()
            time.sleep(3)
            end = time.monotonic()
        later = [sample for sample in self.hot.admitted() if sample.sent >= settled]
        self.assertLessEqual(most_in_any_window(self.hot.admitted(), 1.0), max(LIMIT, count))
        self.assertLessEqual(most_in_any_window(later, 1.0), count)
        # The last window may have begun with a burst just before.
        self.assertGreaterEqual(len(later), 0.95 * count * (end - settled - 1))

    def test_a_raised_count_counts_what_has_passed(self):
        self.change_count(2 * LIMIT)

    def test_a_lowered_count_counts_what_has_passed(self):
        self.change_count(LIMIT // 2)

    def test_a_wrong_document_is_refused_and_changes_nothing(self):
        def wrong(_):
            return not self.running.configure({"flowRules": [{**HOT, "count": 10 * LIMIT, "sampleCount": 7}]})

        updates = self.updates_keep_the_window(wrong)
        self.assertEqual(self.running.stat("listener_manager.lds.update_rejected"), updates)
        self.running.wait_for_log("flowRules[0].sampleCount", "`7` does not divide the 1000 ms interval")


class NewVirtualMachines(EnvoyTest):
    """Gauges go with the last virtual machine that has defined them."""

    ACTIVE = "wasm.envoy.wasm.runtime.v8.active"

    def test_a_rule_that_no_request_asks_for_meanwhile_keeps_its_window_and_what_is_left_of_it(self):
        rules = {"flowRules": [{"id": name, "resource": name, "count": 50, "intervalMs": 60_000} for name in ("asked", "never")]}
        envoy = self.envoy(rules, [route("asked"), route("never")], workers=2, drain_seconds=1)
        vms = envoy.stat(self.ACTIVE)
        self.assertEqual({envoy.get("/asked")[0] for _ in range(20)}, {200})
        eventually("what has passed is published", lambda: self.passed(envoy) == 20)
        for generation in ("first", "second"):
            self.assertTrue(envoy.configure(rules, vm_configuration=generation))
            eventually("the old virtual machines are gone", lambda: envoy.stat(self.ACTIVE) == vms)
        self.assertEqual([envoy.get("/asked")[0] for _ in range(31)], [200] * 30 + [429])

    def passed(self, envoy):
        return envoy.stat("wasmcustom.leapgate.passed;rule=asked;resource=asked")
