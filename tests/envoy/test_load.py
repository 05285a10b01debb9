"""The judge of the window tests is tested first: a judge that sees nothing would accept everything."""

import random
import unittest

from load import Sample, most_in_any_window


def naive(samples, window):
    return max((sum(begin <= s.sent and s.answered <= begin + window for s in samples)
                for begin in [s.sent for s in samples]), default=0)


def drawn(draw, until, most):
    """At most so many samples, at whole numbers, so that many begin or end together, and some are longer than a window."""
    starts = [draw.randrange(until) for _ in range(draw.randrange(most))]
    return [Sample(start, start + draw.randrange(15), 200) for start in starts]


class Checker(unittest.TestCase):
    def test_it_agrees_with_trying_every_interval(self):
        draw = random.Random(1)
        for _ in range(300):
            samples = drawn(draw, 40, 30)
            for window in (1, 5, 10):
                self.assertEqual(most_in_any_window(samples, window), naive(samples, window), (samples, window))

    def test_it_sees_one_request_too_many_in_a_long_run(self):
        limit, window, step = 100, 1.0, 0.0101
        even = [Sample(i * step, i * step + 0.001, 200) for i in range(2000)]
        self.assertLessEqual(most_in_any_window(even, window), limit)
        planted = even + [Sample(10 + i * 0.001, 10 + i * 0.001 + 0.0005, 200) for i in range(2)]
        self.assertGreater(most_in_any_window(planted, window), limit)

    def test_it_sees_the_double_burst_of_a_fixed_window(self):
        around_the_boundary = [Sample(0.99, 0.995, 200)] * 100 + [Sample(1.0, 1.005, 200)] * 100
        self.assertEqual(most_in_any_window(around_the_boundary, 1.0), 200)

    def test_a_request_that_may_have_been_decided_outside_does_not_count(self):
        straddling = [Sample(0.0, 0.6, 200), Sample(0.5, 1.1, 200)]
        self.assertEqual(most_in_any_window(straddling, 1.0), 1)
