"""The dashboard: its JSON by Grafana's own types, its queries in a real Prometheus that scrapes a real Envoy, and a Node.js process, under load."""

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from endings import Behaving
from harness import ROOT, EnvoyTest, cluster, eventually, route
from load import Load, Source
from stores import Redis, Server, Webdis

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "leapgate.json").read_text())
TAGS = re.findall(r"- {tag_name: (\w+), regex: '(.*)'}", (ROOT / "docs" / "metrics.md").read_text())
HOLD = 1.5
RATE = 4  # seconds of a rate

# A JSON document as TypeScript sees it, where Grafana's types have enumerations.
SATISFIES = """
import type { Dashboard, Panel } from '@grafana/schema';
import type { Options as Series, FieldConfig as SeriesField } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type { Options as Timeline, FieldConfig as TimelineField } from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
type Json<T> = T extends string ? `${T}` : T extends (infer U)[] ? Json<U>[] : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
"""


class Prometheus(Server):
    """A Prometheus that scrapes these targets twice a second."""

    def __init__(self, targets):
        super().__init__("prometheus/prometheus")
        scrapes = [{"job_name": name, "scrape_interval": "500ms", "scrape_timeout": "500ms", "metrics_path": path,
                    "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for name, (port, path) in targets.items()]
        (self.folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": scrapes}))
        self.start()

    def _arguments(self):
        return [f"--config.file={self.folder / 'prometheus.yml'}", f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}"]

    def _listens(self):
        if not super()._listens():
            return False
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=10).close()
            return True
        except urllib.error.HTTPError as error:
            error.close()
            return False

    def wait_for_scrapes(self, n):
        """Waits until it scrapes so many targets: it takes five seconds to find even a static one."""
        eventually("it scrapes", lambda: sum(self.ask("up").values()) == n, 20)

    def _get(self, path, **query):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def ask(self, query, rule=".*", resource=".*"):
        """The values of a dashboard's query, by its labels as text."""
        for name, value in (("$__rate_interval", f"{RATE}s"), ("$rule", rule), ("$resource", resource)):
            query = query.replace(name, value)
        return {" ".join(f"{name}={value}" for name, value in sorted(found["metric"].items())): float(found["value"][1])
                for found in self._get("/api/v1/query", query=query)["result"]}

    def values(self, label, selector):
        """What a variable of the dashboard offers."""
        return set(self._get(f"/api/v1/label/{label}/values", **{"match[]": selector}))


def panel(title):
    found = next(panel for panel in DASHBOARD["panels"] if panel["title"] == title)
    return [target["expr"] for target in found["targets"]]


class Schema(unittest.TestCase):
    maxDiff = None

    def errors(self, dashboard):
        """What Grafana's types say of a dashboard."""
        kinds = {"timeseries": ("Series", "SeriesField"), "state-timeline": ("Timeline", "TimelineField"), "stat": ("Stat", "object")}
        text = [SATISFIES, f"({json.dumps({**dashboard, 'panels': []})}) satisfies Json<Dashboard>;"]
        for found in dashboard["panels"]:
            options, field = kinds[found["type"]]
            custom = found["fieldConfig"]["defaults"].get("custom", {})
            text += [f"({json.dumps(found)}) satisfies Json<Panel>;", f"({json.dumps(found['options'])}) satisfies Json<{options}>;",
                     f"({json.dumps(custom)}) satisfies Json<{field}>;"]
        folder = ROOT / ".tools" / "grafana"
        with tempfile.NamedTemporaryFile("w", suffix=".mts", dir=folder) as file:
            file.write("\n".join(text))
            file.flush()
            command = ["node", folder / "node_modules" / "typescript" / "bin" / "tsc", "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022",
                       "--module", "nodenext", "--moduleResolution", "nodenext", file.name]
            return [line.split(": ", 1)[1] for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
                    if "error" in line]

    def test_the_dashboard_is_one_by_grafanas_own_types_and_a_wrong_one_is_not(self):
        self.assertEqual(self.errors(DASHBOARD), [])
        wrong = json.loads(json.dumps(DASHBOARD))
        wrong["schemaVersion"] = "41"
        wrong["panels"][0]["options"]["colorMode"] = "loud"
        wrong["panels"][4]["options"]["legend"]["where"] = "below"
        wrong["panels"][4]["gridPos"]["w"] = "12"
        self.assertEqual(len(self.errors(wrong)), 4)

    def test_panels_have_descriptions_do_not_overlap_and_ask_the_chosen_source(self):
        taken = set()
        self.assertEqual(len({found["id"] for found in DASHBOARD["panels"]}), len(DASHBOARD["panels"]))
        for found in DASHBOARD["panels"]:
            self.assertGreater(len(found["description"]), 20, found["title"])
            self.assertEqual({part["datasource"]["uid"] for part in [found, *found["targets"]]}, {"${datasource}"})
            at = found["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, found["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells

    def test_each_metric_that_the_dashboard_asks_for_is_in_the_table_and_in_the_filter(self):
        table = [row.split(" | ") for row in (ROOT / "docs" / "metrics.md").read_text().splitlines() if row.startswith("| `leapgate_")]
        known = {name for cells in table for name in re.findall(r"`(leapgate_\w+)`", cells[0]) if cells[2] in ("filter", "both")}
        asked = {name for found in DASHBOARD["panels"] for target in found["targets"] for name in re.findall(r"leapgate_\w+", target["expr"])}
        self.assertEqual(asked - known, set())
        # No label that only Envoy has.
        labels = {name for found in DASHBOARD["panels"] for target in found["targets"]
                  for group in re.findall(r"by \(([^)]*)\)|{([^}]*)}", target["expr"]) for name in re.findall(r"[a-z_]+(?==~|,|$)", group[0] or group[1])}
        self.assertEqual(labels - {"rule", "resource", "version"}, set())


    def test_the_npm_package_has_the_metrics_that_the_table_says(self):
        table = [row.split(" | ") for row in (ROOT / "docs" / "metrics.md").read_text().splitlines() if row.startswith("| `leapgate_")]
        said = {name: cells[1] for cells in table if cells[2] == "both" for name in re.findall(r"`leapgate_(\w+)`", cells[0])}
        source = (ROOT / "js" / "lib" / "metrics.js").read_text()
        written = dict(re.findall(r"^  (\w+): \['(counter|gauge)'", source, re.MULTILINE))
        of_kinds = {name for name in said if re.match("(authority|ban|system|breaker|api)_(shadow_)?blocked", name)}
        self.assertEqual({name: kind for name, kind in said.items() if name not in of_kinds}, written)


class Dashboard(EnvoyTest):
    RULES = {
        "flowRules": [
            {"resource": "login", "id": "login", "count": 50},
            {"resource": "login", "id": "dry;run", "count": 10, "mode": "shadow"},
            {"resource": "free", "id": "free", "count": 1000},
            {"resource": "keyed", "id": "keyed", "count": 20, "key": [{"header": "x-user"}], "maxKeys": 100},
            {"resource": "mail", "id": "mail", "count": 20, "controlBehavior": "throttle", "maxQueueingTimeMs": 500},
            {"resource": "report", "id": "report", "count": 8, "grade": "concurrency"},
            {"resource": "chat", "id": "chat", "unit": "tokens", "count": 3000, "cost": {"estimate": 200, "actual": {"header": "x-cost"}}},
            {"resource": "leased", "id": "leased", "count": 100, "clusterMode": True, "clusterConfig": {"thresholdType": 1}},
        ],
        "degradeRules": [{"resource": "pay", "id": "pay", "grade": "errorRatio", "count": 0.5, "timeWindow": 60, "minRequestAmount": 4,
                          "statIntervalMs": 10_000}],
        "envoy": {"metrics": {"holdMs": int(HOLD * 1000)}, "store": {"cluster": "store", "protocol": "webdis", "timeoutMs": 200}},
    }

    def test_each_query_says_what_the_client_has_counted(self):
        redis = Redis()
        self.addCleanup(redis.close)
        webdis = Webdis(redis)
        self.addCleanup(webdis.close)
        redis.wait_for_age(2)
        failing, slow = Behaving(), self.upstream(0.5)
        failing.status = 500
        self.addCleanup(failing.close)
        routes = [*(route(name) for name in ("login", "free", "keyed", "mail", "leased")), route("report", cluster="slow"),
                  route("chat", cluster="slow"), route("pay", cluster="failing")]
        running = self.envoy(self.RULES, routes, workers=2, stats_config={"stats_tags": [{"tag_name": name, "regex": regex} for name, regex in TAGS]},
                             clusters=[cluster("store", webdis.port), cluster("slow", slow.port), cluster("failing", failing.port)])
        prometheus = Prometheus({"envoy": (running.admin_port, "/stats/prometheus")})
        self.addCleanup(prometheus.close)
        prometheus.wait_for_scrapes(1)
        sources = {name: Source(f"/{name}", connections=connections, rate=rate) for name, connections, rate in
                   (("login", 8, 200), ("free", 4, 100), ("keyed", 2, 10), ("mail", 8, 40), ("report", 12, 60), ("chat", 3, None),
                    ("leased", 4, 50), ("pay", 2, 20))}
        sources["keyed"].headers = itertools.cycle(["x-user: ann\r\n", "x-user: bob\r\n"])
        with Load(running.port, *sources.values()):
            time.sleep(RATE + 3)
            end = time.monotonic()
            found = {found["title"]: {title: prometheus.ask(title) for title in panel(found["title"])} for found in DASHBOARD["panels"]}
            # A moment may have nothing in flight, or no permit left of a lease.
            most = {title: [prometheus.ask(f"max_over_time(({query})[{RATE}s:500ms])") for query in panel(title)]
                    for title in ("Waiting", "In flight and held", "Leases")}
        self.every_panel_says_something(found)

        def a_second(name, *statuses):
            samples = [sample for sample in sources[name].samples if end - RATE < sample.answered <= end]
            return sum(sample.status in statuses for sample in samples) / RATE

        def said(title, index=0):
            return list(found[title].values())[index]

        def near(value, counted, of=0.15):
            self.assertAlmostEqual(value, counted, delta=of * counted + 2, msg=str(found))

        refused = said("Refused by rule")
        near(refused["rule=login"], a_second("login", 429))
        self.assertGreater(refused["rule=login"], 100)
        self.assertEqual(refused["rule=free"], 0)
        near(said("Refused by rule", 1)["rule=pay"], a_second("pay", 503))
        near(sum(said("Refused").values()), sum(a_second(name, 429, 503) for name in sources), 0.2)
        near(said("Admitted by rule")["rule=free"], a_second("free", 200))
        near(said("Admitted by rule")["rule=login"], a_second("login", 200))
        near(said("Would be refused (shadow mode)")["rule=dry%3brun"], a_second("login", 200, 429) - 10)
        full = {labels.split("rule=")[1]: value for labels, value in said("Utilization by rule").items()}
        self.assertEqual((full["login"], full["dry%3brun"], full["report"]), (100, 100, 100))
        self.assertTrue(60 <= full["mail"] <= 100, full)  # eight wait, of which one is let go every 50 ms
        self.assertTrue(9 <= full["free"] <= 13, full)
        self.assertTrue(20 <= full["keyed"] <= 40, full)  # five a second for each of two clients, of 20
        self.assertTrue(20 <= full["chat"] <= 100, full)
        self.assertEqual(said("Fullest limit"), {"": 100})
        self.assertEqual(said("Breaker states"), {"resource=pay rule=pay": 1})
        self.assertEqual(said("Open breakers"), {"": 1})
        self.assertEqual(said("Versions"), {"version=0.1.0": 1})
        self.assertTrue(2 <= most["Waiting"][0][""] <= 12, most)
        near(said("Waiting", 1)["rule=mail"], a_second("mail", 200), 0.3)
        self.assertTrue(6 <= most["In flight and held"][0]["rule=report"] <= 8, most)
        self.assertGreater(most["In flight and held"][1]["rule=chat"], 0)
        self.assertGreater(most["Leases"][0]["rule=leased"], 0)
        self.assertGreater(said("Leases", 1)["rule=leased"], 0)
        # The variables, and a rule chosen among them.
        self.assertEqual(prometheus.values("rule", '{__name__=~"leapgate_.*"}'),
                         {"login", "dry%3brun", "free", "keyed", "mail", "report", "chat", "leased", "pay"})
        self.assertEqual(prometheus.values("resource", '{__name__=~"leapgate_.*", rule=~"login|pay"}'), {"login", "pay"})
        (query,) = panel("Admitted by rule")
        self.assertEqual(set(prometheus.ask(query, rule="free|login", resource="login")), {"rule=login"})
        # The load is over: all falls to zero by itself, and the breaker stays open.
        (query,) = panel("Utilization by rule")
        eventually("no limit is in use", lambda: set(prometheus.ask(query).values()) == {0}, HOLD * 9 / 8 + 4)
        self.assertEqual(prometheus.ask(panel("Breaker states")[0]), {"resource=pay rule=pay": 1})

    def every_panel_says_something(self, found):
        nothing = {title: [query for query, values in queries.items() if not values] for title, queries in found.items()}
        # What this load does not bring about: other kinds of rules, and faults.
        absent = re.compile(r"leapgate_(system|authority|ban|api)_|lease_lost|shared|defaulted|cost_missing|debt|wrong_type|rejected")
        self.assertEqual({title: [query for query in queries if not absent.search(query)] for title, queries in nothing.items()},
                         {title: [] for title in found})


class Node(unittest.TestCase):
    RULES = {
        "flowRules": [rule for rule in Dashboard.RULES["flowRules"] if rule["resource"] in ("login", "free", "mail", "report")],
        "degradeRules": Dashboard.RULES["degradeRules"],
    }

    def serve(self, rates):
        """The port of a process with these rules that asks itself so many times a second."""
        folder = tempfile.TemporaryDirectory(prefix="leapgate-")
        self.addCleanup(folder.cleanup)
        modules = pathlib.Path(folder.name, "node_modules")
        modules.mkdir()
        # Found by its name, as by users.
        (modules / "leapgate").symlink_to(ROOT / "dist" / "npm")
        shutil.copy(ROOT / "tests" / "envoy" / "metrics_node.mjs", folder.name)
        process = subprocess.Popen(["node", "metrics_node.mjs", json.dumps(self.RULES), json.dumps(rates)], cwd=folder.name,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.__exit__, None, None, None)  # closes its stdin, at whose end it ends, and waits
        return int(process.stdout.readline())

    def test_the_same_queries_show_a_node_process(self):
        rates = {"login": 200, "free": 100, "mail": 40, "report": 60, "pay": 20}
        prometheus = Prometheus({"node": (self.serve(rates), "/metrics")})
        self.addCleanup(prometheus.close)
        prometheus.wait_for_scrapes(1)
        time.sleep(RATE + 2)
        found = {title: [prometheus.ask(query) for query in panel(title)] for title in
                 ("Refused by rule", "Admitted by rule", "Would be refused (shadow mode)", "Utilization by rule", "Fullest limit",
                  "Breaker states", "Open breakers", "Versions", "Waiting", "In flight and held")}

        def near(title, index, rule, wanted):
            self.assertAlmostEqual(found[title][index][f"rule={rule}"], wanted, delta=0.15 * wanted + 2, msg=str(found))

        near("Refused by rule", 0, "login", rates["login"] - 50)
        near("Refused by rule", 0, "free", 0)
        near("Refused by rule", 1, "pay", rates["pay"])
        near("Admitted by rule", 0, "login", 50)
        near("Admitted by rule", 0, "free", rates["free"])
        near("Would be refused (shadow mode)", 0, "dry;run", rates["login"] - 10)
        near("Waiting", 1, "mail", 20)
        full = {labels.split("rule=")[1]: value for labels, value in found["Utilization by rule"][0].items()}
        self.assertEqual((full["login"], full["report"], found["Fullest limit"][0]), (100, 100, {"": 100}), found)
        self.assertTrue(9 <= full["free"] <= 13, full)
        self.assertEqual(found["Breaker states"][0], {"resource=pay rule=pay": 1})
        self.assertEqual((found["Open breakers"][0], found["Versions"][0]), ({"": 1}, {"version=0.1.0": 1}))
        self.assertTrue(4 <= found["Waiting"][0][""] <= 12, found["Waiting"])
        self.assertTrue(6 <= found["In flight and held"][0]["rule=report"] <= 8, found["In flight and held"])


class Falls(EnvoyTest):
    def test_after_a_flood_each_gauge_falls_and_an_idle_envoy_spends_nothing(self):
        rules = {"flowRules": [{"resource": f"r{n}", "count": 1} for n in range(999)] + [{"resource": "hot", "id": "hot", "count": 20}],
                 "envoy": {"metrics": {"holdMs": 1000}}}
        without = self.envoy(None, [route("hot")], workers=4)
        running = self.envoy(rules, [route("hot")], workers=4)
        shown = lambda: running.stat("wasmcustom.leapgate.utilization_percent;rule=hot")
        source = Source("/hot", connections=32, rate=400)
        with Load(running.port, source):
            time.sleep(0.5)
            eventually("it is full", lambda: shown() == 100)
            time.sleep(0.5)
            self.assertEqual(shown(), 100)
        ended = time.monotonic()
        self.assertEqual(running.workers_reached(), 4)
        eventually("it falls", lambda: shown() == 0)
        self.assertTrue(0.9 < time.monotonic() - ended < 1 + 1.2 + 0.5, time.monotonic() - ended)
        time.sleep(1.5)
        # Other work on the machine can make it more, never less.
        rounds = [[self.idle(envoy) for envoy in (without, running)] for _ in range(8)]
        costs = [min(cost) for cost in zip(*rounds)]
        self.assertLess(costs[1], costs[0] + 1.5, "ms of CPU a second")

    def idle(self, envoy):
        """Milliseconds of CPU in a second."""
        begin, before = time.monotonic(), envoy.cpu_seconds()
        time.sleep(1)
        return (envoy.cpu_seconds() - before) * 1000 / (time.monotonic() - begin)

    def test_an_update_and_the_end_of_a_rule_leave_no_peak_standing(self):
        rules = lambda *names: {"flowRules": [{"resource": "hot", "id": name, "count": 5} for name in names],
                                "envoy": {"metrics": {"holdMs": 2000}}}
        running = self.envoy(rules("one", "two"), [route("hot")], workers=2)
        shown = lambda rule: running.stat(f"wasmcustom.leapgate.utilization_percent;rule={rule}")
        for _ in range(20):
            running.get("/hot")
        eventually("both are full", lambda: shown("one") == 100 and shown("two") == 100)
        self.assertTrue(running.configure(rules("one", "three")))
        eventually("the rule that is gone falls, and the other one with time",
                   lambda: (shown("one"), shown("two"), shown("three")) == (0, 0, 0), 6)


if __name__ == "__main__":
    unittest.main()
