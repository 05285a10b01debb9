"""Makes an OCI image layout of the module: `image.py MODULE FOLDER`, which `./build.sh image` runs.

The same module gives the same bytes on every machine: names, times and owners are fixed, and the layer's gzip has stored blocks only, since
compressors differ between versions and processors. Istio and Envoy Gateway take the image: one layer, of the type `tar+gzip`, with
`plugin.wasm` in it.
"""

import hashlib
import io
import json
import pathlib
import re
import shutil
import struct
import sys
import tarfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
BLOCK = 65535  # the longest stored block of deflate


def archive(module):
    """A tar with plugin.wasm in it, that belongs to root and is from 1970."""
    file = tarfile.TarInfo("plugin.wasm")
    file.size, file.mode = len(module), 0o644
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(file, io.BytesIO(module))
    return out.getvalue()


def gzip(data):
    """RFC 1952 around stored blocks of RFC 1951, without a name and a time."""
    blocks = []
    for start in range(0, len(data), BLOCK):
        block = data[start:start + BLOCK]
        last = start + BLOCK >= len(data)
        blocks.append(struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return head + b"".join(blocks) + struct.pack("<II", zlib.crc32(data), len(data))


def text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def make(module, folder, version):
    """Writes the layout into the folder, in place of what was there; returns the manifest's digest and the sizes of layer and layout."""
    shutil.rmtree(folder, ignore_errors=True)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(media_type, data):
        (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
        return {"mediaType": media_type, "digest": digest(data), "size": len(data)}

    tar = archive(module)
    layer = blob(LAYER, gzip(tar))
    config = blob(CONFIG, text({
        "architecture": "wasm", "os": "wasip1", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest(tar)]}}))
    manifest = blob(MANIFEST, text({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        "annotations": {
            "org.opencontainers.image.title": "leapgate",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "Apache-2.0"}}))
    # The annotation is the tag by which tools name an image of a layout.
    index = {"schemaVersion": 2, "manifests": [{**manifest, "annotations": {"org.opencontainers.image.ref.name": version}}]}
    (folder / "index.json").write_bytes(text(index))
    (folder / "oci-layout").write_bytes(text({"imageLayoutVersion": "1.0.0"}))
    return manifest["digest"], layer["size"], sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main():
    module, folder = map(pathlib.Path, sys.argv[1:])
    version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    found, layer, whole = make(module.read_bytes(), folder, version)
    print(f"{folder}: {version}, a layer of {layer} bytes, {whole} in all\n{found}")


if __name__ == "__main__":
    main()
