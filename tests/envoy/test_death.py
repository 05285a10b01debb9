"""A virtual machine that traps: what it held is given back."""

import http.client
import os
import re
import subprocess
import time

from harness import ROOT, WASM, EnvoyTest, cluster, eventually, route

BUILT = ROOT / "target" / "trap" / "wasm32-unknown-unknown" / "debug"
MODULE = BUILT / "trap.wasm"
CALLBACKS = ROOT / "envoy" / "callbacks.wat"
MODULE_HOW = {"vm_fields": {"code": {"local": {"filename": str(MODULE)}}}}
IN_FLIGHT = "wasmcustom.leapgate.in_flight;rule=slow"
GIVEN_BACK = "leapgate: a virtual machine has died: what it held is given back"


def rules(count):
    return {"flowRules": [{"resource": "slow", "id": "slow", "count": count, "grade": "concurrency"}]}


class Death(EnvoyTest):
    @classmethod
    def setUpClass(cls):
        """The filter as it ships but for one thing: a request with the header `x-trap` traps."""
        command = ["cargo", "rustc", "--locked", "--target", "wasm32-unknown-unknown", "--target-dir", str(ROOT / "target" / "trap"),
                   "-p", "leapgate-envoy", "--features", "trap", "--crate-type", "cdylib"]
        # Small, so that Envoy loads it soon, and built soon itself.
        small = {"CARGO_PROFILE_DEV_OPT_LEVEL": "1", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_DEV_STRIP": "debuginfo"}
        exports = ["memory", "malloc", "proxy_abi_version_0_2_1", *re.findall(r'"(leapgate_on_\w+)"', CALLBACKS.read_text())]
        linked = {"RUSTFLAGS": f"-C link-arg=--exports={','.join(exports)}",
                  "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER": str(ROOT / "envoy" / "link.sh")}
        cls.do(command, {**small, **linked})
        # As build.sh gives the callbacks their names.
        binaryen, names = ROOT / ".tools" / "binaryen" / "node_modules" / ".bin", str(BUILT / "callbacks.wasm")
        cls.do([str(binaryen / "wasm-as"), str(CALLBACKS), "-o", names])
        built = [str(BUILT / "leapgate_envoy.wasm"), "filter", names, "callbacks"]
        cls.do([str(binaryen / "wasm-merge"), *built, "-o", str(MODULE)])

    @staticmethod
    def do(command, environment=None):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **(environment or {})})
        if done.returncode:
            raise AssertionError(done.stderr)

    def start(self, count, workers, seconds, **how):
        clusters = [cluster("up", self.upstream(seconds).port)]
        return self.envoy(rules(count), [route("slow", cluster="up")], workers=workers, clusters=clusters, plugin_how=MODULE_HOW, **how)

    def begin(self, running):
        """A request that gets no answer for long."""
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", "/slow")
        return connection

    def begin_calls(self, running, n):
        calls = [self.begin(running) for _ in range(n)]
        eventually("they are in flight", lambda: running.stat(IN_FLIGHT) == n)
        return calls

    def test_the_calls_of_a_worker_that_traps_are_given_back_within_twelve_seconds(self):
        for workers in (1, 4):
            with self.subTest(workers=workers):
                running = self.start(5, workers, 40)
                self.begin_calls(running, 5)
                self.assertEqual(running.get("/slow")[0], 429)
                # So many that each worker gets one.
                self.assertEqual({running.get("/slow", {"x-trap": "1"})[0] for _ in range(40)}, {503})
                begin = time.monotonic()

                def all_are_given_back():
                    running.get("/none")  # on a new connection: each worker is awake
                    return running.stat(IN_FLIGHT) == 0

                self.assertEqual(running.stat(IN_FLIGHT), 5)
                eventually("all are given back", all_are_given_back, 14)
                self.assertGreater(time.monotonic() - begin, 8)
                self.assertIn(GIVEN_BACK, running.log())
                self.begin_calls(running, 5)
                self.assertEqual(running.get("/slow")[0], 429)

    def counts_until_it_ends(self, running, call):
        begin = time.monotonic()
        while time.monotonic() - begin < 12.5:
            self.assertEqual(running.get("/slow")[0], 429)
            time.sleep(0.5)
        self.assertEqual(call.getresponse().status, 200)
        eventually("it has ended", lambda: running.stat(IN_FLIGHT) == 0)
        self.assertNotIn(GIVEN_BACK, running.log())

    def test_a_long_call_counts_as_long_as_its_worker_lives(self):
        running = self.start(1, 2, 14)
        [call] = self.begin_calls(running, 1)
        self.counts_until_it_ends(running, call)

    def test_a_long_call_counts_while_its_worker_drains_beside_a_new_virtual_machine(self):
        running = self.start(1, 2, 14, drain_seconds=30)
        [call] = self.begin_calls(running, 1)
        self.assertTrue(running.configure(rules(1), vm_configuration="new", **MODULE_HOW))
        self.counts_until_it_ends(running, call)

    def test_the_module_that_ships_cannot_be_trapped_so(self):
        self.assertIn(b"x-trap", MODULE.read_bytes())
        self.assertNotIn(b"x-trap", WASM.read_bytes())
