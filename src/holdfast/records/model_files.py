"""Digest of a run's model files, which its records name: after more training they belong to other weights."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from holdfast.records.records import Records

FILES = "config.json", "model.safetensors"


def model_files_digest(folder: Path) -> str:
    """Digest of the configuration, however it is written, and the weights; empty for a folder without both."""
    config, weights = (folder / name for name in FILES)
    try:
        described = json.dumps(json.loads(config.read_text(encoding="utf-8")), sort_keys=True)
        digest = hashlib.blake2b(described.encode("utf-8", "surrogatepass"), digest_size=16)
        with weights.open("rb") as file:
            while block := file.read(2**24):
                digest.update(block)
    except (OSError, ValueError, RecursionError):
        return ""
    return digest.hexdigest()


def outdated(sets: Sequence[Records], run: Path) -> list[Records]:
    """Record sets of a run that were measured before its model files changed; none if ``run`` names records."""
    digests: dict[Path, str] = {}
    found = []
    for records in sets:
        recorded = records.header.get("model_files")
        if recorded is None or records.folder is None:
            continue
        folder = records.folder.resolve().parents[1]
        if run.expanduser().resolve() in (folder, *folder.parents):
            if folder not in digests:
                digests[folder] = model_files_digest(folder)
            found += [records] if digests[folder] not in ("", recorded) else []
    return found
