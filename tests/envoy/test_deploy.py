"""What `deploy/` has for production: the image, and Envoy's own configuration, in the real Envoy."""

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
import unittest

import yaml

from harness import ENVOY, ROOT, WASM, Envoy, EnvoyTest, eventually, free_port

DEPLOY = ROOT / "deploy"
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
