"""What `deploy/` has for production: the image, the resources, and in the real Envoy what Istio makes of them.

Files of `tests/deploy/` stand for Istio and for the schemas of the resources: `./build.sh test deploy` makes them.
"""

import gzip
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import jsonschema
import yaml

from harness import ENVOY, ROOT, WASM, Envoy, EnvoyTest, cluster, eventually, free_port
from load import Load, Source, most_in_any_window

DEPLOY = ROOT / "deploy"
MADE = ROOT / "tests" / "deploy"
SCRIPT = DEPLOY / "image" / "image.py"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Image(unittest.TestCase):
    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-image-"))
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def layout(self, umask=0o022, **environment):
        folder = self.folder() / "image"
        done = subprocess.run([sys.executable, SCRIPT, WASM, folder], cwd=folder.parent, umask=umask, check=True, capture_output=True,
                              text=True, env={**os.environ, **environment})
        return folder, done.stdout

    def read(self, folder, descriptor):
        """The bytes of a descriptor, which are as it says."""
        algorithm, name = descriptor["digest"].split(":")
        data = (folder / "blobs" / algorithm / name).read_bytes()
        self.assertEqual((algorithm, name, descriptor["size"]), ("sha256", hashlib.sha256(data).hexdigest(), len(data)))
        return data

    def test_the_same_module_gives_the_same_bytes(self):
        first, _ = self.layout()
        second, _ = self.layout(umask=0o077, TZ="Asia/Tokyo", PYTHONHASHSEED="7", LC_ALL="C", SOURCE_DATE_EPOCH="1700000000")
        files = [{path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
                 for folder in (first, second)]
        self.assertEqual(files[0], files[1])
        self.assertEqual(len(files[0]), 5)

    def test_it_is_an_image_of_one_layer_with_the_module_in_it(self):
        folder, printed = self.layout()
        self.assertEqual(json.loads((folder / "oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})
        index = json.loads((folder / "index.json").read_text())
        self.assertEqual((index["schemaVersion"], len(index["manifests"])), (2, 1))
        described = index["manifests"][0]
        self.assertEqual(printed.splitlines()[1], described["digest"])
        manifest = json.loads(self.read(folder, described))
        self.assertEqual(manifest["mediaType"], described["mediaType"])
        self.assertEqual(manifest["mediaType"], "application/vnd.oci.image.manifest.v1+json")
        self.assertEqual(manifest["config"]["mediaType"], "application/vnd.oci.image.config.v1+json")
        [layer] = manifest["layers"]
        # The only type that both fetchers take for an image of OCI's form.
        self.assertEqual(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip")
        tar = gzip.decompress(self.read(folder, layer))
        config = json.loads(self.read(folder, manifest["config"]))
        self.assertEqual(config["rootfs"], {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]})
        with tarfile.open(fileobj=io.BytesIO(tar)) as files:
            self.assertEqual(files.getnames(), ["plugin.wasm"])
            self.assertEqual(files.extractfile("plugin.wasm").read(), WASM.read_bytes())
        # Nothing else is in the layout.
        named = [described, manifest["config"], layer]
        self.assertEqual({file.name for file in (folder / "blobs" / "sha256").iterdir()}, {entry["digest"][7:] for entry in named})

    def test_a_layout_takes_the_place_of_an_older_one(self):
        make = load(SCRIPT).make
        folder = self.folder() / "image"
        make(b"\0asm one", folder, "0.1.0")
        make(b"\0asm two", folder, "0.1.0")
        self.assertEqual(len(list((folder / "blobs" / "sha256").iterdir())), 3)

    def test_gzip_of_stored_blocks_can_be_read_whatever_the_size(self):
        image = load(SCRIPT)
        for size in (1, image.BLOCK - 1, image.BLOCK, image.BLOCK + 1, 2 * image.BLOCK, 200_000):
            data = os.urandom(size)
            self.assertEqual(gzip.decompress(image.gzip(data)), data)


class FromFile(Envoy):
    """One Envoy of a whole bootstrap."""

    def __init__(self, settings, workers=4):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-"))
        self._log_file = self.folder / "envoy.log"
        self.port = settings["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"]
        self.admin_port = settings["admin"]["address"]["socket_address"]["port_value"]
        (self.folder / "bootstrap.json").write_text(json.dumps(settings))
        self._command = [ENVOY, "-c", self.folder / "bootstrap.json", "--concurrency", str(workers), "--disable-hot-restart",
                         "--file-flush-interval-msec", "10"]
        self.start()


class Production(EnvoyTest):
    """deploy/envoy/envoy.yaml, with only the fields changed that it marks with an arrow, and the port of its admin interface."""

    def start(self):
        settings = yaml.safe_load((DEPLOY / "envoy" / "envoy.yaml").read_text())
        listener, = settings["static_resources"]["listeners"]
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": free_port()}
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_filters"][0]["typed_config"]["config"]["vm_config"]["code"] = {"local": {"filename": str(WASM)}}
        endpoint = settings["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": self.upstream(seconds=0).port}
        admin = settings["admin"]["address"]["socket_address"]
        self.assertEqual(admin["address"], "127.0.0.1")
        admin["port_value"] = free_port()
        running = FromFile(settings)
        self.addCleanup(self._stop, running)
        return running

    def test_each_client_has_its_limit_and_chooses_neither_its_address_nor_its_path(self):
        running = self.start()
        paths = ["/login", "//login", "/./login", "/a/../login", "/login?x"]
        answers = [running.get(paths[i % len(paths)], {"x-forwarded-for": f"192.0.2.{i}"}) for i in range(30)]
        self.assertEqual([status for status, _, _ in answers], [200] * 20 + [429] * 10)
        self.assertEqual(running.get("/other")[0], 200)
        # Nothing in the file is deprecated, or has another meaning than it seems.
        self.assertEqual([line for line in running.log().splitlines() if "][warning]" in line or "][error]" in line], [])

    def test_its_labels_of_statistics_are_those_of_the_demonstration(self):
        files = [yaml.safe_load(path.read_text()) for path in (DEPLOY / "envoy" / "envoy.yaml", ROOT / "envoy" / "envoy.yaml")]
        self.assertEqual(files[0]["stats_config"], files[1]["stats_config"])

    def test_the_access_log_names_the_rule_that_refuses(self):
        running = self.start()
        for _ in range(21):
            running.get("/login")

        def entries():
            found = [json.loads(line) for line in running.log().splitlines() if line.startswith("{")]
            return found if len(found) == 21 else None

        entries = eventually("each request is in the log", entries)
        self.assertEqual({entry["route_name"] for entry in entries}, {"login"})
        self.assertEqual([(entry["response_code"], entry["response_code_details"]) for entry in entries[19:]],
                         [(200, "via_upstream"), (429, "leapgate{rule=login/60s/key=clientIp}")])


def closed(schema):
    """A schema of Kubernetes as JSON Schema: an object has no other fields than the schema names."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(part) for name, part in schema.items()}
    if schema.get("type") == "object" and "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    elif schema.get("nullable"):
        found["type"] = [schema["type"], "null"]
    return found


class Resources(unittest.TestCase):
    """The light check of what `tests/deploy` checks by the code of Kubernetes and Istio."""

    def setUp(self):
        self.schemas = {schema["kind"]: schema for schema in (json.loads(path.read_text()) for path in (MADE / "crds").glob("*.json"))}
        self.resources = [yaml.safe_load(path.read_text()) for folder in ("istio", "envoy-gateway")
                          for path in sorted((DEPLOY / folder).glob("*.yaml"))]

    def mistakes(self, resource):
        schema = self.schemas[resource["kind"]]
        self.assertEqual(schema["apiVersion"], resource["apiVersion"])
        return [error.message for error in jsonschema.Draft4Validator(closed(schema["spec"])).iter_errors(resource["spec"])]

    def test_the_schemas_accept_them(self):
        self.assertEqual({resource["kind"] for resource in self.resources}, set(self.schemas))
        for resource in self.resources:
            self.assertEqual(self.mistakes(resource), [], resource["kind"])

    def test_the_schemas_refuse_other_fields_and_values(self):
        for resource in self.resources:
            with self.subTest(resource["kind"]):
                resource["spec"]["rules"] = []
                self.assertEqual(self.mistakes(resource), ["Additional properties are not allowed ('rules' was unexpected)"])
        plugin = next(resource for resource in self.resources if resource["kind"] == "WasmPlugin")
        del plugin["spec"]["rules"]
        plugin["spec"]["failStrategy"] = "RELOAD"
        self.assertEqual(self.mistakes(plugin), ["'RELOAD' is not one of ['FAIL_CLOSE', 'FAIL_OPEN', 'FAIL_RELOAD']"])


LIMIT = 100


class Translated(EnvoyTest):
    """What a control plane has made of a resource, and of an update of it that halves the first limit, with the routes of its gateway."""

    def start(self, name, **how):
        self.made = json.loads((MADE / "translated" / f"{name}.json").read_text())
        hosts = self.made["routes"]["virtual_hosts"]
        upstream = self.upstream(seconds=0)
        clusters = {route["route"]["cluster"] for host in hosts for route in host["routes"]}
        self.running = self.envoy(None, hosts=hosts, workers=4, clusters=[cluster(name, upstream.port) for name in clusters], **how)

    def version(self, name):
        """A version of the resource, with the module of this checkout; nothing else is changed."""
        found = json.loads(json.dumps(self.made[name]))
        found["typed_config"]["config"]["vm_config"]["code"] = {"local": {"filename": str(WASM)}}
        return found

    def limits_hold(self):
        """The limit of a rule, and that of each client, over four workers."""
        checkout, login = Source("/checkout", connections=32), Source("/login", connections=8)
        with Load(self.running.port, checkout, login):
            time.sleep(3)
        self.assertGreaterEqual(self.running.workers_reached(), 2)
        self.assertGreater(len(checkout.samples), 5 * 3 * LIMIT, "that was no overload")
        self.assertLessEqual(most_in_any_window(checkout.admitted(), 1.0), LIMIT)
        self.assertGreater(len(checkout.admitted()), 2 * LIMIT)
        self.assertEqual(len(login.admitted()), 20)

    def updates_keep_counts(self):
        """Updates of the resource under load, each at another place of the window; returns how many VMs one of them made."""
        checkout, login = Source("/checkout", connections=32), Source("/login", connections=8)
        updates, before = 0, self.virtual_machines()
        with Load(self.running.port, checkout, login):
            begin = time.monotonic()
            while time.monotonic() < begin + 4:
                updates += 1
                self.update(["config", "updated"][updates % 2])
                time.sleep(0.13)
            self.update("updated")
            updates += 1
            # Workers take the last update with their next event, and connections to a replaced listener drain for a second.
            time.sleep(2.5)
            settled = time.monotonic()
            time.sleep(2)
        later = [sample for sample in checkout.admitted() if sample.sent >= settled]
        self.assertGreaterEqual(updates, 5)
        self.assertLessEqual(most_in_any_window(checkout.admitted(), 1.0), LIMIT)
        self.assertLessEqual(most_in_any_window(later, 1.0), LIMIT / 2)
        self.assertGreaterEqual(len(later), 0.9 * LIMIT / 2)
        # A client's limit is for a minute, so all of these are in one window. Of a request that a replaced listener has cut off, the outcome is
        # unknown.
        self.assertLessEqual(len(login.admitted()), 20)
        self.assertGreaterEqual(len(login.admitted()) + login.lost, 20)
        return (self.virtual_machines() - before) / updates

    def virtual_machines(self):
        return self.running.stat("wasm.envoy.wasm.runtime.v8.created")


class Istio(Translated):
    """Istio's two resources, with the statistics that its proxies keep."""

    def start(self, name):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-istio-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.made = json.loads((MADE / "translated" / f"{name}.json").read_text())
        resource = self.made["config"]["name"]
        # It stands before Istio's own filters, which the plain Envoy does not have.
        self.assertLess(self.made["filters"].index(resource), self.made["filters"].index("envoy.filters.http.fault"))
        self.publish("config")
        stats = json.loads((MADE / "translated" / "stats.json").read_text())
        # By these the test sees which workers have had a connection.
        stats["stats_matcher"]["inclusion_list"]["patterns"].append({"prefix": "listener."})
        fields = {"use_remote_address": self.made["use_remote_address"]}
        super().start(name, stats_config=stats, manager_fields=fields, before=[{
            "name": resource,
            "config_discovery": {
                "config_source": {"path_config_source": {"path": str(self.folder / "extension.json")}},
                "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"],
            },
        }])

    def publish(self, version):
        """Istio's agent gives Envoy this version; returns its document."""
        extension = self.version(version)
        fresh = self.folder / "extension.new"
        fresh.write_text(json.dumps({"resources": [{"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", **extension}]}))
        fresh.rename(self.folder / "extension.json")
        return extension["typed_config"]["config"]["configuration"]["value"]

    def update(self, version):
        document = self.publish(version)

        def arrived():
            dump = json.loads(self.running.admin("/config_dump?resource=ecds_filters"))["configs"]
            return [found["ecds_filter"]["typed_config"]["config"]["configuration"]["value"] for found in dump] == [document]

        eventually("Envoy has the update", arrived)

    def test_limits_of_virtual_services_hold_over_workers(self):
        self.start("wasmplugin")
        self.limits_hold()

    def test_limits_of_http_routes_hold_over_workers(self):
        self.start("trafficextension")
        self.limits_hold()

    def test_an_update_of_a_resource_with_an_image_keeps_the_virtual_machines_and_the_counts(self):
        self.start("wasmplugin")
        # Only the main thread tries the new configuration in a VM of its own.
        self.assertLessEqual(self.updates_keep_counts(), 2)

    def test_an_update_of_a_resource_with_a_file_makes_new_virtual_machines_and_keeps_the_counts(self):
        self.start("wasmplugin-file")
        # Istio writes the resource's version into the VM's environment, so each worker gets a new VM.
        self.assertGreater(self.updates_keep_counts(), 4)


class EnvoyGateway(Translated):
    def start(self, manager="manager"):
        name = "envoyextensionpolicy"
        super().start(name, manager_fields=json.loads((MADE / "translated" / f"{name}.json").read_text())[manager])
        self.update("config")

    def update(self, version):
        self.assertTrue(self.running.put(self.version(version)), self.running.log()[-2000:])

    def test_limits_of_http_routes_hold_over_workers(self):
        self.start()
        self.limits_hold()

    def test_an_update_of_the_policy_keeps_the_virtual_machines_and_the_counts(self):
        self.start()
        self.assertLessEqual(self.updates_keep_counts(), 2)

    def test_without_a_proxy_before_the_gateway_clients_do_not_choose_their_address(self):
        self.start()
        statuses = [self.running.get("/login", {"x-forwarded-for": f"192.0.2.{i}"})[0] for i in range(25)]
        self.assertEqual(statuses, [200] * 20 + [429] * 5)

    def test_behind_a_proxy_the_address_is_the_one_that_the_proxy_has_seen(self):
        self.start("manager_behind_a_proxy")
        statuses = [self.running.get("/login", {"x-forwarded-for": f"192.0.2.{i}, 198.51.100.7"})[0] for i in range(25)]
        self.assertEqual(statuses, [200] * 20 + [429] * 5)
        self.assertEqual(self.running.get("/login", {"x-forwarded-for": "198.51.100.8"})[0], 200)

    def test_policies_with_one_root_id_share_limits_without_a_key_alone(self):
        def passing(path, first=0, **other):
            """How many requests pass in a chain of both policies, each of which counts each request, an interval after the first ones."""
            self.start()
            config = self.version("config")
            # All requests fit into an interval, on a slow machine, too.
            rules = config["typed_config"]["config"]["configuration"]
            rules["value"] = rules["value"].replace('"count":100,', '"count":100,"intervalMs":4000,')
            self.assertIn("4000", rules["value"])
            second = json.loads(json.dumps(config).replace("/shop/leapgate/", "/shop/other/"))
            second["typed_config"]["config"].update(other)
            for filter in (config, second):
                del filter["disabled"]
            self.running._around = ([second], [])
            self.assertTrue(self.running.put(config))
            for _ in range(first):
                self.running.get(path)
                time.sleep(4.1)
            return [self.running.get(path)[0] for _ in range(LIMIT + 10)].count(200)

        self.assertEqual(passing("/login"), 20)
        self.assertEqual(passing("/checkout", root_id="other"), LIMIT)
        # The second policy opens its window when the first has counted a request. It has virtual machines of its own, whose shared data is
        # another: a past that it does not know counts as used for one interval.
        self.assertEqual(passing("/checkout"), 0)
        self.assertEqual(passing("/checkout", first=1), LIMIT / 2)
