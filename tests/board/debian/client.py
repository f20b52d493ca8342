"""The client of `run.sh`: logs in, and finds what it writes in the file that stands for memory."""

import sys
from pathlib import Path

import numpy as np

from vtaops.runtime.remote import RemoteDevice

address, config, memory = sys.argv[1:]
with RemoteDevice(address, config, timeout=60) as device:
    facts = device.info()
    print({name: facts[name] for name in ("machine", "python", "numpy", "interface")})
    data = np.random.default_rng(0).integers(0, 256, 3 << 20, dtype=np.uint8)
    buffer = device.alloc(data.size)
    device.write(buffer, data)
    assert np.array_equal(device.read(buffer, data.size), data)
    with Path(memory).open("rb") as file:
        file.seek(buffer.address)
        assert file.read(data.size) == data.tobytes()
print("passed")
