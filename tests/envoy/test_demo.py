"""`./build.sh run` in a fresh clone: envoy/envoy.yaml itself is under test."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

from harness import ROOT, eventually, free_port


class Demo(unittest.TestCase):
    def setUp(self):
        self.ports = {name: free_port() for name in ("LEAPGATE_PORT", "LEAPGATE_UPSTREAM_PORT", "LEAPGATE_ADMIN_PORT")}

    def start(self, **environment):
        settings = {name: str(port) for name, port in self.ports.items()}
        demo = subprocess.Popen(
            [sys.executable, ROOT / "envoy" / "demo.py"], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **settings, **environment},
        )
        self.addCleanup(self.end, demo)
        return demo

    def end(self, demo):
        demo.kill()
        demo.communicate()

    def read_until(self, demo, last):
        """The output through a pipe while it stays up."""
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if last in line:
                return "".join(lines)
        self.fail("".join(lines) + demo.stderr.read())

    def nothing_is_left(self):
        def free():
            for port in self.ports.values():
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        return False
            return True

        eventually("every port is free again", free)

    def test_exactly_the_limit_passes_whatever_the_number_of_workers(self):
        for workers in ("1", "4"):
            with self.subTest(workers=workers):
                demo = self.start(LEAPGATE_WORKERS=workers)
                table = self.read_until(demo, "Ctrl-C")
                rows = re.findall(r"^(\w+) +(\d+) in (\d+) s +(\d+) +(\d+) +(\d+)$", table, re.MULTILINE)
                self.assertEqual(rows, [("login", "5", "1", "20", "5", "15"), ("api", "100", "10", "400", "100", "300")])
                self.curl_lines_work(table)
                demo.send_signal(signal.SIGINT)
                self.assertEqual(demo.wait(10), 0)
                self.assertEqual(demo.stderr.read(), "")
                self.nothing_is_left()

    def curl_lines_work(self, table):
        urls = re.findall(r"http://127\.0\.0\.1:\d+/\S+", table)
        paths = {re.sub(r"http://127\.0\.0\.1:\d+", "", url).rstrip(";") for url in urls}
        self.assertEqual(paths, {"/login", "/stats/prometheus"})
        for port in (self.ports["LEAPGATE_PORT"], self.ports["LEAPGATE_ADMIN_PORT"]):
            self.assertIn(f":{port}/", table)

    def test_the_access_log_replayed_through_the_rules_has_the_refusals_of_envoy(self):
        demo = self.start()
        table = self.read_until(demo, "Ctrl-C")
        self.assertIn("dist/leapgate replay .tools/run/rules.json .tools/run/access.log\n", table)
        rules, log = (ROOT / ".tools" / "run" / name for name in ("rules.json", "access.log"))

        def replayed(requests):
            eventually("all lines are in the log", lambda: log.read_bytes().count(b"\n") == requests)
            command = [ROOT / "dist" / "leapgate", "replay", "--json", rules, log]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            report = json.loads(done.stdout)
            self.assertEqual((report["lines"], report["requests"], report["skipped"]["count"]), (requests, requests, 0))
            return report

        # Each burst fits into its window, so that no edge of a bucket lies between its requests.
        report = replayed(420)
        refused = {rule["id"]: rule["refused"] for rule in report["rules"]}
        self.assertEqual((refused, report["answered429"]), ({"login": 15, "api/10s": 300}, 315))

        # Requests over several windows. Envoy's buckets begin with another clock than the log has, and a request is decided some
        # microseconds after the time in its line: at the edge of a bucket of 10 ms one more or less may pass in each window.
        statuses = []
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["LEAPGATE_PORT"], timeout=10)
        for i in range(90):
            connection.request("GET", "/login")
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
            time.sleep(0.02 + i % 7 / 200)
        connection.close()
        report = replayed(420 + len(statuses))
        seen = 315 + statuses.count(429)
        self.assertEqual(report["answered429"], seen)
        self.assertLessEqual(abs(report["refused"] - seen), 5)

    def test_nothing_is_left_running_however_it_ends(self):
        for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(name.name):
                demo = self.start()
                self.read_until(demo, "Ctrl-C")
                demo.send_signal(name)
                demo.wait(10)
                self.nothing_is_left()

    def test_nothing_is_left_running_when_the_reader_leaves(self):
        demo = self.start()
        demo.stdout.readline()
        demo.stdout.close()
        demo.wait(10)
        self.nothing_is_left()

    def test_a_taken_port_is_one_sentence(self):
        for name, port in self.ports.items():
            with self.subTest(name), socket.create_server(("127.0.0.1", port)):
                demo = self.start()
                _, said = demo.communicate(timeout=10)
                self.assertEqual(demo.returncode, 1)
                self.assertEqual(said.count("\n"), 1, said)
                self.assertIn(f"port {port} of 127.0.0.1", said)
                self.assertIn(f"{name}=PORT ./build.sh run", said)

    def test_a_setting_that_is_not_a_number_is_one_sentence(self):
        demo = self.start(LEAPGATE_WORKERS="many")
        _, said = demo.communicate(timeout=10)
        self.assertEqual((demo.returncode, said.count("\n")), (1, 1), said)
        self.assertIn("LEAPGATE_WORKERS is 'many'", said)


class Readme(unittest.TestCase):
    def test_its_configuration_is_the_one_that_is_tested(self):
        def lines(text):
            return [line.strip() for line in text.splitlines() if line.strip()]

        tested = lines((ROOT / "envoy" / "envoy.yaml").read_text())
        blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        self.assertTrue(blocks, "README.md shows no configuration")
        for block in blocks:
            shown = lines(block)
            begin = tested.index(shown[0])
            self.assertEqual(shown, tested[begin:begin + len(shown)])
