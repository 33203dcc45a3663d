"""Workers in processes of their own, and clients that serve nothing: what tests of several processes are made of."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import holdfast

PATIENCE_S = 50.0  # a bound, never a measure


def ask(url, what):
    """What a client without agents says."""

    async def main():
        async with holdfast.open(url) as hf:
            return await asyncio.wait_for(what(hf), PATIENCE_S)

    return asyncio.run(main())


def bearer(url, name="tess", **options):
    """A header that a server of this store knows."""
    return {"Authorization": f"Bearer {ask(url, lambda hf: hf.create_token(name, **options))[1]}"}


class Worker:
    """One process. All it says is kept, by a thread, so that it never waits for the test to read."""

    def __init__(self, process):
        self._process, self.pid, self._lines, self._changed = process, process.pid, [], threading.Condition()
        self._silent = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self._process.stdout as stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line.decode())
                    self._changed.notify_all()
        with self._changed:
            self._silent = True
            self._changed.notify_all()

    def said(self):
        return "".join(self._lines)

    def until(self, text):
        """Wait for a line with this text."""
        with self._changed:
            self._changed.wait_for(lambda: self._silent or any(text in line for line in self._lines), PATIENCE_S)
        found = next((line for line in self._lines if text in line), None)
        assert found, f"{text!r} never came in:\n{self.said()}"
        return found

    @property
    def worked_s(self):
        """How long it has had a processor: on a computer that is busy with other tests it waits for longer, and works as long."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def running(self):
        return self._process.poll() is None

    def stop(self):
        """As a supervisor does."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self):
        """As kill -9; returns when it is gone."""
        if self.running:
            self._process.kill()
        self.ended()

    def ended(self):
        """How it ended."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code
