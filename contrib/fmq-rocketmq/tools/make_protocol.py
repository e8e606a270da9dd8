"""Make fmq_rocketmq/wire/rocketmq_v2.binpb: RocketMQ's messages and calls, as descriptors.

    pip install rocketmq-python-client
    python contrib/fmq-rocketmq/tools/make_protocol.py [--check]

RocketMQ's own Python client (Apache-2.0) carries the descriptors of `definition.proto` and
`service.proto`. This script copies them as they are into one file. The package makes its message
classes from that file when it is imported, so nothing of the client is needed then, and no code is
generated that only one version of protobuf can read. wire/NOTICE says whose work the file is.
"""

from __future__ import annotations

import sys
from pathlib import Path

WIRE = Path(__file__).parent.parent / "fmq_rocketmq" / "wire"


def descriptors() -> bytes:
    """Return both files of the protocol and those that they import, as one FileDescriptorSet."""
    from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
    from rocketmq.grpc_protocol import definition_pb2, service_pb2

    found = descriptor_pb2.FileDescriptorSet()
    for each in (timestamp_pb2, duration_pb2, definition_pb2, service_pb2):
        each.DESCRIPTOR.CopyToProto(found.file.add())
    made: bytes = found.SerializeToString(deterministic=True)
    return made


def main() -> int:
    """Write the file, or with --check say whether it is what the client has."""
    target, made = WIRE / "rocketmq_v2.binpb", descriptors()
    if "--check" in sys.argv:
        same = target.read_bytes() == made
        print("the same" if same else "differs: run this script without --check")
        return 0 if same else 1
    target.write_bytes(made)
    print(f"{target}: {len(made):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
