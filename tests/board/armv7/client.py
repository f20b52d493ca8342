"""The client of `run.sh`: everything but results, which the stub does not compute."""

import sys

import numpy as np

from trials.boards import ARRAYS, OP, bit_file
from vtaops import Session
from vtaops.errors import DeviceError
from vtaops.runtime.remote import RemoteDevice

with RemoteDevice(sys.argv[1], "pynq", timeout=60) as device:
    device.program(bit_file().to_bytes(), "hls")
    facts = device.info()
    print({name: facts[name] for name in ("machine", "python", "numpy", "interface")})
    data = np.random.default_rng(0).integers(0, 256, 3 << 20, dtype=np.uint8)
    buffer = device.alloc(data.size)
    device.write(buffer, data)
    assert np.array_equal(device.read(buffer, data.size), data)
    session, sent = Session(device), []
    for _ in range(3):
        before = device.sent_bytes
        session.run(OP, *ARRAYS)
        sent.append(device.sent_bytes - before)
    counted, once = session.stats, session.program(OP).stats()
    assert counted == once + once + once
    print("bytes sent by three equal calls:", sent)
    try:
        device._request("alloc", nbytes="x")
    except DeviceError as error:
        print("refused:", error)
    print("passed")
