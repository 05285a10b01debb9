"""The judge of fleets, and the link that makes their store hard to reach: what they find and do."""

import socket
import threading
import time
import unittest

from fleet import Link, Over, over
from harness import eventually
from load import Sample


class Judge(unittest.TestCase):
    def admissions(self, times, rule="hot", key=""):
        return [(rule, key, Sample(at, at + 0.001, 200)) for at in times]

    def test_an_interval_that_only_the_merged_logs_overfill_is_found(self):
        one, other = ([begin + 0.1 * i for i in range(20)] for begin in (100, 100.05))
        limits, windows = {"hot": 11}, {"hot": 1.0}
        for log in (one, other):
            self.assertEqual(over(self.admissions(log), limits, windows), [])
        self.assertEqual(over(self.admissions(one + other), limits, windows), [Over("hot", "", 20, 11)])

    def test_one_admission_too_much_is_found_wherever_it_is(self):
        steady = [100 + 0.1 * i + 0.002 for i in range(30)]
        limits, windows = {"hot": 10}, {"hot": 1.0}
        self.assertEqual(over(self.admissions(steady), limits, windows), [])
        for planted in (100, 101.5, 102.95):
            self.assertEqual(over(self.admissions([*steady, planted]), limits, windows), [Over("hot", "", 11, 10)])

    def test_keys_and_rules_are_apart(self):
        times = [100 + 0.1 * i for i in range(10)]
        log = [*self.admissions(times, key="a"), *self.admissions(times, key="b"), *self.admissions(times, rule="calm")]
        self.assertEqual(over(log, {"hot": 10, "calm": 4}, {"hot": 1.0, "calm": 0.45}), [Over("calm", "", 5, 4)])

    def test_only_the_time_that_is_asked_for_counts(self):
        log = self.admissions([100, 100.1, 103, 103.1])
        self.assertEqual(over(log, {"hot": 1}, {"hot": 1.0}, since=103.05), [])
        self.assertEqual(over(log, {"hot": 1}, {"hot": 1.0}, until=102), [Over("hot", "", 2, 1)])


class OverLink(unittest.TestCase):
    def setUp(self):
        """An echo behind a link."""
        self.server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.server.close)
        self.accepted = []
        threading.Thread(target=self.serve, daemon=True).start()
        self.link = Link(self.server.getsockname()[1])
        self.addCleanup(self.link.close)

    def serve(self):
        def echo(connection):
            with connection:
                while data := connection.recv(1000):
                    connection.sendall(data)

        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.link.port), timeout=5)
        self.addCleanup(connection.close)
        return connection

    def ask(self, connection):
        """How long an answer takes, in seconds; `None` if the connection ends instead."""
        begin = time.monotonic()
        try:
            connection.sendall(b"x")
            answer = connection.recv(1)
        except ConnectionError:
            return None
        return time.monotonic() - begin if answer else None

    def test_it_carries_both_ways_and_delays_each(self):
        connection = self.connect()
        self.assertLess(self.ask(connection), 0.1)
        self.link.delay(0.1, 0.11)
        self.assertGreaterEqual(self.ask(connection), 0.2)
        self.link.clear()
        self.assertLess(self.ask(connection), 0.1)

    def test_a_cut_ends_a_connection_and_others_can_be_made(self):
        connection = self.connect()
        self.link.cut(1)
        self.assertIsNone(self.ask(connection))
        self.link.clear()
        self.assertIsNotNone(self.ask(self.connect()))

    def test_what_is_held_arrives_later(self):
        connection = self.connect()
        self.assertIsNotNone(self.ask(connection))
        self.link.hold()
        connection.sendall(b"x")
        connection.settimeout(0.2)
        self.assertRaises(TimeoutError, connection.recv, 1)
        self.link.clear()
        connection.settimeout(5)
        self.assertEqual(connection.recv(1), b"x")

    def test_without_a_server_connections_end(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        eventually("the server has gone", lambda: self.ask(self.connect()) is None)
