"""The load engine: data from the port into scratchpads. The load and the compute unit have one."""

from __future__ import annotations

from collections import deque

from vtaops.program.timing.events import EventLoop, Process
from vtaops.program.timing.parameters import TimingParameters
from vtaops.program.timing.port import Port
from vtaops.program.timing.work import Work

Interval = tuple[float, float]


class LoadEngine:
    """Requests run ahead, over rows and instructions; writes happen in order.

    Attributes
    ----------
    end : float
        Of the last write.
    free : float
        When the next load that reads DRAM may start: the one before it has begun to request.
    """

    __slots__ = (
        "_beats_in_flight",
        "_bursts_in_flight",
        "_client",
        "_last_request",
        "_loop",
        "_parameters",
        "_port",
        "_to_arrive",
        "_to_write",
        "_work",
        "end",
        "free",
    )

    def __init__(
        self, loop: EventLoop, port: Port, client: int, work: Work, parameters: TimingParameters
    ) -> None:
        self._loop = loop
        self._port = port
        self._client = client
        self._work = work
        self._parameters = parameters
        # Chunks that hold places: bursts until their data arrive, beats until they are written.
        self._to_arrive: deque[tuple[int, float]] = deque()
        self._to_write: deque[tuple[int, float]] = deque()
        self._bursts_in_flight = self._beats_in_flight = 0
        self.end = 0.0
        self.free = 0.0
        self._last_request = -1.0

    def move(
        self,
        index: int,
        start: float,
        allowed: float,
        written: list[Interval] | None,
        held: Interval = (0.0, 0.0),
    ) -> Process:
        """Execute the load `index`, started at `start`; writes may begin at `allowed`.

        From `held[0]` to `held[1]` nothing is written. `written` receives the intervals in which
        it writes, pauses of a chunk included.
        """
        loop, work, p = self._loop, self._work, self._parameters
        latency, buffer = p.request_latency + p.dram_latency, p.buffer_latency
        window, outstanding = p.load_window, p.outstanding
        to_arrive, to_write = self._to_arrive, self._to_write
        beats, before, zeros = work.beats[index], work.before[index], work.zeros[index]
        bursts = work.bursts[index]
        pause, resume = held

        end = max(self.end, start + p.load_fill, allowed)
        if before:
            begin, end = end, self._written_by(end, before, held)
            if written is not None:
                written.append((begin, end))
        request, done, requested, padded = start + 1, 0, 0, 0
        if beats:
            request = max(request, self._last_request + 1)
            self.free = request
        grant, client, read = self._port.grant, self._client, Port.READ
        in_flight, outstanding_now = self._beats_in_flight, self._bursts_in_flight
        most_beats, most_bursts = self._port.grain
        chunks = max(-(-beats // most_beats), -(-bursts // most_bursts))
        # Comparisons instead of max: this is the innermost loop of the model.
        for chunk in range(1, chunks + 1):
            size = beats * chunk // chunks - done
            count = bursts * chunk // chunks - requested
            pads = zeros * chunk // chunks - padded if zeros else 0
            done, requested, padded = done + size, requested + count, padded + pads
            in_flight += size
            while in_flight > window:
                freed, time = to_write.popleft()
                in_flight -= freed
                if request < time:
                    request = time
            outstanding_now += count
            while outstanding_now > outstanding:
                freed, time = to_arrive.popleft()
                outstanding_now -= freed
                if request < time:
                    request = time
            ready = request + latency
            if ready >= loop.horizon:
                yield ready
            first, last = grant(client, read, ready, size, index)
            written_from = first + buffer
            if end < written_from:
                end = written_from
            if pause <= end < resume:
                end = resume
            end += size + pads
            if end - size - pads < pause < end:
                end += resume - pause
            written_by = last + buffer
            if end < written_by:
                end = written_by
            if written is not None:
                written.append((end - size - pads, end))
            to_write.append((size, end))
            to_arrive.append((count, last))
            request += count or 1
        if chunks:
            self._last_request = request - 1
        self._beats_in_flight, self._bursts_in_flight = in_flight, outstanding_now
        if zeros > padded:  # no data at all: only padding
            begin, end = end, self._written_by(end, zeros, held)
            if written is not None:
                written.append((begin, end))
        self.end = end

    @staticmethod
    def _written_by(begin: float, cycles: int, held: Interval) -> float:
        """Return when so many cycles of writes end that do not wait for data."""
        pause, resume = held
        if pause <= begin < resume:
            begin = resume
        return begin + cycles + (resume - pause if begin < pause < begin + cycles else 0.0)
