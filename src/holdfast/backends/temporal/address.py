"""Addresses: what a URL `temporal://HOST:PORT/NAMESPACE` says, how the cluster is reached, and the names of things there."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from holdfast.backends.temporal.blobs import INLINE_BYTES, THRESHOLD_BYTES, Folder
from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.values.codec import Limit
from holdfast.words.harmless import logger
from holdfast.words.urls import HIDDEN, redacted

RUN: Final = "holdfast.run"  # the workflow that is a run
AGENT: Final = "holdfast.agent"  # one that nobody carries out, which publishes an agent in its memo
ARRIVE: Final = "holdfast.arrive"  # the signal by which anything comes to a run
BORN: Final = "run.born"  # what a run hears that came with another one, when that is there
TELL: Final = "holdfast.tell"  # the update that asks a run for all that it is made of
LEAVE: Final = "holdfast.leave"  # the update by which it leaves the cluster
STORE: Final = "holdfast.store"  # a workflow that nobody carries out: its memo names the store that a namespace is
IMPORTED: Final = "holdfast.imported"  # such a one for each bundle that came
EXPORTED: Final = "holdfast.exported"  # and for each in which a run went
DECIDE: Final = "holdfast.decide"  # the update by which a person says something to a question
STEP: Final = "holdfast.step"
SIDE: Final = "holdfast.side"  # an activity that asks the database beside the cluster
SIDE_OF: Final = (
    "holdfast.beside"  # a workflow that nobody carries out: which database the task queues of a name have beside them
)
KEEP: Final = "holdfast.keep"  # an activity whose input is what a run recorded, and which copies that into the feed
FED_S: Final = 10.0  # for so long one copies, before another does
ASIDE: Final = "value.aside"  # the kind of a signal with a large value, which the decision that follows only names
ASIDE_BYTES: Final = 30_000  # a larger value goes ahead of its decision, because a workflow task sends its updates back
NOT_ASIDE: Final = "holdfast.aside"  # the type of the failure of a decision whose value has not come to this execution
MORE: Final = "more"  # among the questions by which a run is found: it has more of them
NOBODY: Final = "nobody"  # ends the name of a task queue that is never polled
LONGEST: Final = 8_000  # events of one execution: the server warns at 10,240 and ends a workflow at 51,200

AGENT_KEY: Final = SearchAttributeKey.for_keyword("HoldfastAgent")
STATUS_KEY: Final = SearchAttributeKey.for_keyword("HoldfastStatus")
WAITS_KEY: Final = SearchAttributeKey.for_keyword("HoldfastWaitsFor")
ROOT_KEY: Final = SearchAttributeKey.for_keyword("HoldfastRoot")
PARENT_KEY: Final = SearchAttributeKey.for_keyword("HoldfastParent")
QUESTIONS_KEY: Final = SearchAttributeKey.for_keyword_list("HoldfastQuestions")
LABELS_KEY: Final = SearchAttributeKey.for_keyword_list("HoldfastLabels")
KEYS: Final = (AGENT_KEY, STATUS_KEY, WAITS_KEY, ROOT_KEY, PARENT_KEY, QUESTIONS_KEY, LABELS_KEY)

_OPTIONS: Final = ("queue", "blobs", "events", "ca", "cert", "key", "tls", "api_key_file", "inputs", "side")
_NO_NAMESPACE: Final = re.compile(r"Namespace (\S+) is not found")
_REFUSED: Final = re.compile(r"tcp connect error.*?Os \{ code: (\d+)")
_TOO_LARGE: Final = re.compile("size exceeds limit|message.* larger than max|message too large", re.IGNORECASE)
_NAME: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A namespace of a cluster, and how Holdfast uses it."""

    url: str
    target: str
    namespace: str
    queue: str = "holdfast"  # begins the names of all task queues
    blobs: str | None = None  # a folder that all processes share, for large values
    longest: int = LONGEST
    tls: TLSConfig | bool = False
    api_key: str | None = None
    inputs: Any = None
    side: str | None = None  # the URL of a database beside the cluster

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL; `BadArguments` says what is wrong with it."""
        parts, shown = urlsplit(url), redacted(url)
        namespace = unquote(parts.path.strip("/"))
        try:
            port = parts.port
        except ValueError:
            port = None
        if not parts.hostname or port is None or not namespace or "/" in namespace or parts.username is not None:
            raise BadArguments(f"{shown!r} names no namespace of a cluster; write 'temporal://HOST:7233/NAMESPACE'")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        odd = sorted(given.keys() - set(_OPTIONS))
        if odd:
            meant = {each: get_close_matches(each, _OPTIONS, 1) for each in odd}  # a word like one of ours is no secret
            known = (each for each in odd if f"{each}=" in shown or meant[each])
            name = next(known, HIDDEN)  # anything else may be a piece of a password
            instead = "; a key is read from a file, api_key_file=FILE" if name == "api_key" else ""
            if not instead and meant.get(name):
                instead = f". Did you mean {meant[name][0]}=?"
            raise BadArguments(f"{shown!r}: there is no option {name!r}; there are {', '.join(_OPTIONS)}{instead}")
        queue, events = given.get("queue", "holdfast"), given.get("events", str(LONGEST))
        if not _NAME.fullmatch(queue):
            raise BadArguments(
                f"{shown!r}: queue={queue!r} begins names of task queues; use letters, digits, '.', '-', '_'"
            )
        if not events.isascii() or not events.isdigit() or not 50 <= int(events) <= 40_000:
            raise BadArguments(
                f"{shown!r}: events={events!r}: give a number of events of one execution from 50 to 40000"
            )
        if given.get("inputs", "digest") not in ("full", "digest"):
            raise BadArguments(f"{shown!r}: inputs= is 'full' or 'digest'")
        return cls(
            shown, f"{parts.hostname}:{port}", namespace, queue, given.get("blobs") or None, int(events), _tls(given, shown),
            None if "api_key_file" not in given else _read(given["api_key_file"], shown).decode().strip(), given.get("inputs"),
            _side(given.get("side"), shown),
        )  # fmt: skip

    @property
    def value_limit_bytes(self) -> int:
        """The largest value that travels."""
        more = "name a folder for large values in the URL of all workers and clients (?blobs=FOLDER)"
        return sys.maxsize if self.blobs is not None else Limit(INLINE_BYTES, more)

    def converter(self) -> DataConverter:
        """Make what values travel by: as JSON, and large ones by their digest if there is a folder for them."""
        if self.blobs is None:
            return DataConverter.default
        storage = ExternalStorage(drivers=[Folder(self.blobs)], payload_size_threshold=THRESHOLD_BYTES)
        return dataclasses.replace(DataConverter.default, external_storage=storage)

    async def connect(self) -> Client:
        """Reach the cluster, and see that it has the search attributes that lists need."""
        try:
            client = await Client.connect(
                self.target,
                namespace=self.namespace,
                tls=self.tls,
                api_key=self.api_key,
                data_converter=self.converter(),
                runtime=_runtime(),
            )
            await self._prepare(client)
        except (RPCError, RuntimeError, OSError) as error:
            raise StoreUnavailable(f"the cluster at {self.url!r} cannot be used: {self.told(error)}") from error
        return client

    def told(self, error: Exception) -> str:
        """Say in words what the SDK tells of a cluster that cannot be reached, or has no such namespace."""
        text = str(error)
        if lacking := _NO_NAMESPACE.match(text):
            made = f"temporal operator namespace create --namespace {lacking[1]} --address {self.target}"
            return f"it has no namespace {lacking[1]!r}. Name another in the URL, or make it: {made}"
        if found := _REFUSED.search(text):
            return (
                f"nothing answers at {self.target} ({os.strerror(int(found[1])).lower()}). Start the Temporal server, or name "
                "its address in the URL; its frontend has port 7233 if nobody chose another"
            )
        if "dns error" in text:
            return f"there is no host {self.target.rpartition(':')[0]!r}. Name another in the URL"
        return text

    async def _prepare(self, client: Client) -> None:
        asked = ListSearchAttributesRequest(namespace=self.namespace)
        try:
            known = (await client.operator_service.list_search_attributes(asked)).custom_attributes
        except RPCError as error:
            if error.status in (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED):
                return  # a cloud, whose operators add them; the first write tells what is missing
            raise
        missing = {
            key.name: IndexedValueType.ValueType(int(key.indexed_value_type)) for key in KEYS if key.name not in known
        }
        if missing:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(namespace=self.namespace, search_attributes=missing)
            )

    def task_queue(self, agent: str, version: str | None, queue: str) -> str:
        """Name the task queue of the runs of an agent: a worker that polls it has the code, in that version."""
        named = agent if version is None else f"{agent}@{version}"
        return f"{self.queue}:{named}" + ("" if queue == "default" else f"/{queue}")


def is_missing(error: RPCError) -> bool:
    """Is there no such workflow? A server that starts does not know its namespaces for a moment, and says so in the same way."""
    details = () if error.grpc_status is None else error.grpc_status.details
    of_namespace = any(each.type_url.endswith("NamespaceNotFoundFailure") for each in details)
    return error.status == RPCStatusCode.NOT_FOUND and not of_namespace


def is_too_large(error: RPCError) -> bool:
    """Did the cluster refuse what was sent, because of its size?"""
    refused = error.status in (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.RESOURCE_EXHAUSTED)
    return refused and _TOO_LARGE.search(str(error)) is not None


@functools.cache
def _runtime() -> Runtime:
    """The SDK of this process: what it has to say is logged as everything is, a line each, and not printed."""
    to = LogForwardingConfig(logger("holdfast.temporal"), append_target_to_name=False, prepend_target_on_message=False)
    level = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(level, forwarding=to)))


def _side(said: str | None, shown: str) -> str | None:
    """The URL of a database, or the one that a variable of the environment has: `$NAME`."""
    if said is None:
        return None
    url = os.environ.get(said[1:], "") if said.startswith("$") else said
    if not url.startswith(("postgresql:", "postgres:", "sqlite:")):
        found = f"the variable {said[1:]} is not set to one" if said.startswith("$") else "that is none"
        raise BadArguments(
            f"{shown!r}: side= is the URL of a database beside the cluster, postgresql://..., with %26 in the place of '&', or "
            f"$NAME, a variable of the environment that has it; {found}"
        )
    return url


def _tls(given: dict[str, str], shown: str) -> TLSConfig | bool:
    if given.keys() & {"ca", "cert", "key"}:
        if ("cert" in given) != ("key" in given):
            raise BadArguments(
                f"{shown!r}: cert= and key= belong together: the files of a client's certificate and its key"
            )
        ca, cert, key = (_read(given[name], shown) if name in given else None for name in ("ca", "cert", "key"))
        return TLSConfig(server_root_ca_cert=ca, client_cert=cert, client_private_key=key)
    said = given.get("tls", "on" if "api_key_file" in given else "off")
    if said not in ("on", "off"):
        raise BadArguments(f"{shown!r}: tls= is 'on' or 'off'")
    return said == "on"


def _read(path: str, shown: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadArguments(f"{shown!r}: the file {path!r} cannot be read: {error.strerror}") from None
