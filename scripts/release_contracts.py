"""Keeps a description of the contracts in proto/ as `proto/released.binpb`.

`tests/unit/test_contracts.py` refuses what would break a peer that was built from it. Additions
need no renewal. It is renewed with every release (`make proto-release`), and before that only
for a break that is meant: then CHANGELOG.md says what breaks and for whom. Until the first release
nobody was built from it, and it may be renewed with any change.
"""

from __future__ import annotations

import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
RELEASED = ROOT / "proto" / "released.binpb"


def describe(target: Path) -> FileDescriptorSet:
    """Compiles proto/ into a descriptor set.

    Args:
        target: the file that is written; comments and positions are left out.

    Raises:
        RuntimeError: protoc refuses a file; it has said why on stderr.
    """
    proto = ROOT / "proto"
    files = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
    # Google's own files (google/protobuf/empty.proto) come with the compiler.
    includes = [f"-I{proto}", f"-I{Path(protoc.__file__).with_name('_proto')}"]
    if protoc.main(["protoc", *includes, f"--descriptor_set_out={target}", *files]) != 0:
        raise RuntimeError("protoc refuses the contracts")
    return FileDescriptorSet.FromString(target.read_bytes())


if __name__ == "__main__":
    described = describe(RELEASED)
    print(f"{RELEASED.relative_to(ROOT)}: {len(described.file)} files", file=sys.stderr)
