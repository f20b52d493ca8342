"""Executors of a Dask cluster, which may run on one machine, over SSH, or on a Slurm cluster.

Only questions and answers travel: workers need vtaops and no access to the store. Dask computes
again what a lost worker was busy with.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING

from vtaops.base.errors import DeviceError
from vtaops.base.optional import optional

if TYPE_CHECKING:
    from distributed import Client


def dask_executor(client: Client | str) -> Executor:
    """Return an executor that computes on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or str
        A client, or the address of a scheduler (``"tcp://10.0.0.1:8786"``).

    Raises
    ------
    UnsupportedError
        If Dask is not installed.
    DeviceError
        If there is no scheduler at the address.
    """
    dask = optional("distributed", "Dask", "a cluster needs", "'vtaops[explore]'")
    if isinstance(client, str):
        try:
            client = dask.Client(client, timeout=10)
        except (OSError, TimeoutError, ValueError) as error:
            raise DeviceError(f"no Dask scheduler at {client!r}: {error}") from error
    executor: Executor = client.get_executor(pure=False)
    return executor
