"""build.sh on a machine that lacks something: one sentence that names it and the cure, and nothing half-installed."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import ROOT

NOWHERE = "http://127.0.0.1:1"


class Prerequisites(unittest.TestCase):
    def setUp(self):
        """A checkout of the files that the installation reads, and a PATH with only the commands that a test puts there."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="leapgate-build-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = self.folder / "bin"
        for folder in (self.bin, self.folder / "tests"):
            folder.mkdir()
        for name in ("build.sh", "rust-toolchain.toml", "tests/requirements.txt"):
            shutil.copy(ROOT / name, self.folder / name)
        for name in ("bash", "cat", "cmp", "dirname", "env", "grep", "mkdir", "rm", "sed"):
            (self.bin / name).symlink_to(shutil.which(name))

    def has(self, *names):
        for name in names:
            (self.bin / name).symlink_to(shutil.which(name))

    def plays(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def fails(self, *sentence, command="run"):
        environment = {
            **os.environ, "PATH": str(self.bin), "HOME": str(self.folder),
            "PIP_INDEX_URL": NOWHERE, "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0",
            "npm_config_registry": NOWHERE, "npm_config_cache": str(self.folder / "npm"), "npm_config_fetch_retries": "0",
        }
        done = subprocess.run([self.folder / "build.sh", command], env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in sentence:
            self.assertIn(part, done.stderr)

    def test_without_python(self):
        self.fails("python3 is missing", "install Python 3.10 or newer")

    def test_with_an_old_python(self):
        self.plays("python3", 'if [ "$1" = --version ]; then echo "Python 3.8.10"; else exit 1; fi')
        self.fails("Python 3.8.10 is too old", "install Python 3.10 or newer")

    def test_with_a_python_that_cannot_make_environments(self):
        self.plays("python3", '[[ "$2" != *ensurepip* ]]')
        self.fails("cannot make virtual environments", "python3-venv")

    def test_without_rustup(self):
        self.fails("rustup is missing", "https://rustup.rs", command="wasm")

    def test_when_rustup_cannot_download(self):
        self.plays("rustup", "echo 'error: could not download file'; exit 1")
        self.fails("rustup could not install the toolchain", "check the network", command="wasm")

    def test_without_node(self):
        self.plays("rustup", "exit 0")
        self.fails("Node.js with npm is missing", "https://nodejs.org", command="wasm")

    def test_when_npm_cannot_download(self):
        self.plays("rustup", "exit 0")
        self.has("node", "npm")
        self.fails("npm could not download binaryen", "check the network", command="wasm")
        self.assertFalse((self.folder / ".tools" / "binaryen").exists())

    def test_when_pip_cannot_download(self):
        self.plays("python3", f'exec {sys._base_executable} "$@"')
        self.fails("pip could not install tests/requirements.txt", "check the network")
        self.assertFalse((self.folder / ".tools" / "venv").exists())

    def test_when_cargo_cannot_download(self):
        self.plays("rustup", "exit 0")
        self.plays("cargo", "echo 'error: failed to download'; exit 101")
        (self.folder / ".tools" / "binaryen").mkdir(parents=True)
        version = [line for line in (ROOT / "build.sh").read_text().splitlines() if line.startswith("BINARYEN=")][0]
        (self.folder / ".tools" / "binaryen" / "installed").write_text(version.removeprefix("BINARYEN="))
        self.has("npm")
        self.fails("cargo could not download the crates", "check the network", command="wasm")

    def test_an_unknown_command_is_named(self):
        done = subprocess.run([ROOT / "build.sh", "deploy"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no command 'deploy'", done.stderr)

    def test_alone_it_lists_its_commands(self):
        done = subprocess.run([ROOT / "build.sh"], capture_output=True, text=True, check=True)
        commands = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("./build.sh ")]
        self.assertEqual(commands, ["run", "test", "check", "wasm", "image", "cli", "npm", "fleet", "soak", "nightly", "bench", "bench", "bench", "site"])
