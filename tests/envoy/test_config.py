"""The sentence about a wrong configuration in the log of the Envoy that refuses it; and the largest configurations that are accepted."""

import json
import re
import subprocess
import tempfile

from harness import ENVOY, ROOT, EnvoyTest, route

LOGIN = {"resource": "login", "count": 2, "intervalMs": 60_000}


def rules(*flow_rules, **rest):
    return {"flowRules": list(flow_rules), **rest}


REFUSED = [
    ("", 'document: `` is not a configuration; give the plugin rules: `{"flowRules": [{"resource": "*", "count": 100}]}`'),
    ('{"flowRules": [}', "document: `{\"flowRules\": [}` goes wrong on line 1, column 16 (expected value); correct it there"),
    ([LOGIN], "document: `[…]` is an array; put it in an object, under `flowRules`"),
    ({"flowrules": []}, "document: `flowrules` is not a known key; use `flowRules`, or one of"),
    ({"degradeRules": [{"resource": "login", "grade": "errorRatio", "count": 5, "timeWindow": 10}]},
     "degradeRules[0].count: `5` is not a valid ratio; use a number from 0 to 1"),
    ({"systemRules": [{"highestSystemLoad": 4}]},
     "systemRules[0]: `highestSystemLoad` is not known in Envoy, where a filter cannot see the machine; use `bbr`,"),
    ({"envoy": {"errors": {"status": ["6xx"]}}}, "envoy.errors.status[0]: `6xx` is not a valid status; use `5xx`, `4xx` or a number"),
    (rules({**LOGIN, "key": ["clientIP"]}), "flowRules[0].key[0]: `clientIP` is not a part of a request; use `clientIp`, `path`, `method`, `host`, `peer`, or an object"),
    ('{"mode": "shadow", "mode": "enforce"}', "document: `mode` is given twice; keep one of the two"),
    (rules(LOGIN, {"resource": "api"}), "flowRules[1]: `count` is missing; add it"),
    (rules({**LOGIN, "count": -1}), "flowRules[0].count: `-1` is not a valid count; use a number from 0 to 9007199254740992"),
    (rules({**LOGIN, "count": "2"}), "flowRules[0].count: `2` is a string; use a number"),
    (rules({**LOGIN, "intervalMs": 1000, "sampleCount": 7}),
     "flowRules[0].sampleCount: `7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100"),
    (rules({**LOGIN, "window": "fast"}),
     "flowRules[0].window: `fast` is not a valid value; use one of `strict`, `sentinel`, `weighted`"),
    (rules({**LOGIN, "grade": "concurrency"}),
     "flowRules[0].intervalMs: `60000` means nothing to a limit on concurrency; leave it out"),
    (rules({**LOGIN, "strategy": "chain", "refResource": "entry"}),
     "flowRules[0].strategy: `chain` never applies in Envoy, where requests come in by no context; use `direct`"),
    (rules({**LOGIN, "limitApp": "shop"}), "flowRules[0].limitApp: `shop` never applies where requests have no origin"),
    (rules({**LOGIN, "controlBehavior": "throttle", "maxQueueingTimeMs": -1}), "flowRules[0].maxQueueingTimeMs: `-1` "),
    (rules(envoy={"maxWaiting": -1}), "envoy.maxWaiting: `-1` is not possible; use a whole number from 0 to 10000"),
    (rules(envoy={"origin": {"from": "client"}}), "envoy.origin.from: `client` is not a valid value; use `peer`"),
    (rules(LOGIN, LOGIN), "flowRules[1].id: "),
    (rules(envoy={"resource": {"header": "x-api"}}), "envoy.resource: `header` is not a known key; use one of `from`, `fixed`"),
    (rules(envoy={"cluster": {}}), "envoy: `cluster` is not a known key; use one of"),
    (rules(envoy={"scope": "vm"}), "envoy.scope: `vm` is not a valid value; use one of `process`, `worker`"),
    (rules(envoy={"reply": {"status": 200}}), "envoy.reply.status: `200` is not possible; use a whole number from 400 to 599"),
    (rules(envoy={"reply": {"headers": {"x y": "a"}}}), "envoy.reply.headers: `x y` is not a valid header name"),
    (rules(envoy={"rateLimitHeaders": "ietf"}),
     "envoy.rateLimitHeaders: `ietf` is not a valid value; use one of `draft`, `legacy`, `off`"),
    ("[" * 5000 + "]" * 5000, "is nested too deep on line 1, column 128; use at most 127 levels"),
    ('{"flowRules": ' + "[" * 5000 + "]" * 5000 + "}", "is nested too deep on line 1, column 141; use at most 127 levels"),
    (json.dumps({"flowRules": [{**LOGIN, "app": "x" * 10_000_000}]}), "bytes are too many for a document; use at most 8388608"),
]


class Configuration(EnvoyTest):
    def test_a_wrong_document_is_refused_with_one_sentence_and_changes_nothing(self):
        running = self.envoy(rules(LOGIN), [route("login")])
        self.assertEqual(running.get("/login")[0], 200)
        for document, sentence in REFUSED:
            with self.subTest(sentence):
                before = len(running.log())
                self.assertFalse(running.configure(document), "it was accepted")
                said = re.findall(r"leapgate: (\S+: .*)", running.log()[before:])
                self.assertEqual(len(said), 1, said)
                self.assertIn(sentence, said[0])
        # One request was used before the first refusal, one is left.
        self.assertEqual([running.get("/login")[0] for _ in range(2)], [200, 429])

    def test_a_listener_is_not_opened_on_a_wrong_document(self):
        running = self.envoy({"flowRules": 5}, [route("login")])
        running.wait_for_log("leapgate: flowRules: `5` is a number; use an array")
        self.assertEqual(running.stat("listener_manager.total_listeners_active"), 0)

    def test_an_envoy_whose_own_file_is_wrong_says_so_and_ends(self):
        text = (ROOT / "envoy" / "envoy.yaml").read_text()
        cases = [('"count": 5', 0, "configuration '"), ('"count": -5', 1, "flowRules[0].count: `-5` is not a valid count")]
        for count, code, sentence in cases:
            with self.subTest(count), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text.replace('"count": 5', count))
                file.flush()
                command = [ENVOY, "--mode", "validate", "-c", file.name, "--disable-hot-restart"]
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(sentence, done.stdout + done.stderr)

    def test_ten_thousand_rules_are_loaded(self):
        many = [{"resource": f"route-{i}", "count": 5, "intervalMs": 60_000} for i in range(9_999)]
        running = self.envoy(rules(), [route("route-9998"), route("login")])
        self.assertTrue(running.configure(rules(*many, LOGIN)), running.log()[-2000:])
        self.assertEqual([running.get("/login")[0] for _ in range(3)], [200, 200, 429])
        self.assertEqual([running.get("/route-9998")[0] for _ in range(6)], [200] * 5 + [429])
