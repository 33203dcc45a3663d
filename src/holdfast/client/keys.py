"""Keys: the people who sign bundles and decisions, whose signatures are believed, or for whom a bundle is encrypted.

A key is a pair of pairs in one file, which `holdfast key new NAME` writes: Ed25519 to sign, X25519 to be written to. What others
need of it is one line of text (`Key.public`). A shared key is a secret that both sides have; it signs by HMAC and encrypts nothing.

The folder is `$HOLDFAST_KEYS`, else `~/.config/holdfast/keys`. `NAME.key` is a key of one's own, `NAME.secret` a shared one,
`trusted/NAME.pub` the public part of somebody else's, and `known/NAME.pub` that of somebody for whom bundles are encrypted, and
whose signatures count for nothing. The name of a trusted key is the name of the person, as whom its signatures count, whatever the
file says that they are on; so are the groups.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.errors import BadArguments, BadBundle
from holdfast.words.people import checked_name

Use = Literal["bundles", "decisions"]
USES: Final[tuple[Use, ...]] = ("bundles", "decisions")
_PUBLIC: Final = "holdfast-public-key"
_SECRET_BYTES: Final = 32
_MOST: Final = 10_000  # bytes of a file of a key
_FILE: Final = re.compile(r"[\w.@-]{1,100}", re.ASCII)
_INFO: Final = b"holdfast bundle key"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is here: one's own, a shared one, or the public part of somebody else's.

    Attributes:
        name: The person or program that signs with it.
        id: Names the key itself: a digest of its public part.
        kind: "own", "shared", "trusted", or "known": one that bundles are encrypted for, and that nothing is believed of.
        groups: Of a trusted key: the groups that the person is in.
        uses: What its signatures are believed for: "bundles", "decisions" or both; nothing of a key that is only known.
        public: The line that others need to trust it; empty for a shared key.

    Example:
        ```python
        ana = holdfast.Keys("keys").new("ana")
        assert ana.kind == "own" and ana.public.startswith("holdfast-public-key ana ")
        ```
    """

    name: str
    id: str
    kind: Literal["own", "shared", "trusted", "known"]
    groups: tuple[str, ...] = ()
    uses: tuple[Use, ...] = USES
    public: str = ""
    _verify: bytes = field(default=b"", repr=False)  # the public key of signatures, or the shared secret
    _receive: bytes = field(default=b"", repr=False)  # the public key for what is written to its owner
    _private: tuple[bytes, bytes] = field(default=(b"", b""), repr=False)

    def sign(self, message: bytes) -> bytes:
        """Sign a message.

        Raises:
            BadArguments: It is somebody else's key.

        Example:
            ```python
            signature = holdfast.Keys("keys").new("ben").sign(b"otters")
            ```
        """
        if self.kind == "shared":
            return hmac.digest(self._verify, message, "sha256")
        if self.kind != "own":
            raise BadArguments(f"the key of {self.name!r} is somebody else's: only its owner signs with it")
        return bytes(_ed25519().Ed25519PrivateKey.from_private_bytes(self._private[0]).sign(message))

    def check(self, signature: bytes, message: bytes) -> bool:
        """Tell whether this key signed the message.

        Example:
            ```python
            key = holdfast.Keys("keys").new("cleo")
            assert key.check(key.sign(b"otters"), b"otters")
            ```
        """
        if self.kind == "shared":
            return hmac.compare_digest(hmac.digest(self._verify, message, "sha256"), signature)
        try:
            _ed25519().Ed25519PublicKey.from_public_bytes(self._verify).verify(signature, message)
        except _crypto().InvalidSignature:
            return False
        return True


class Keys:
    """The keys in a folder.

    Args:
        folder: Where they are; `HOLDFAST_KEYS` unless given, then `~/.config/holdfast/keys`.

    Example:
        ```python
        keys = holdfast.Keys("keys")
        keys.new("ana")
        assert [key.name for key in keys.all()] == ["ana"]
        ```
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        given = folder if folder is not None else os.environ.get("HOLDFAST_KEYS")
        self.folder = Path(given) if given else Path.home() / ".config" / "holdfast" / "keys"

    def new(self, name: str, *, shared: bool = False) -> Key:
        """Make a key, in a file that only this account may read.

        Args:
            name: The person or program that signs with it.
            shared: Make a secret instead, to be carried to the other side by a safe way.

        Raises:
            BadArguments: There is a key of this name, or it can name no file.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            ```
        """
        path = self.folder / f"{_checked(name)}.{'secret' if shared else 'key'}"
        if shared:
            told = {"secret": _base64(secrets.token_bytes(_SECRET_BYTES))}
        else:
            sign, receive = _ed25519().Ed25519PrivateKey.generate(), _x25519().X25519PrivateKey.generate()
            told = {"sign": _base64(sign.private_bytes_raw()), "receive": _base64(receive.private_bytes_raw())}
        if any(self._path(name, kind).exists() for kind in ("key", "secret")):
            raise BadArguments(f"there is a key of {name!r} in {str(self.folder)!r} already; it was not touched")
        self._write(path, {"name": name, **told})
        return _read(path)

    def trust(
        self, public: str, *, name: str | None = None, groups: Iterable[str] = (), uses: Iterable[str] = USES
    ) -> Key:
        """Believe the signatures of another person's key from now on, as signatures of that person.

        Args:
            public: The line of the key, as `key.public` and `holdfast key show` give it.
            name: The person; the name in the line unless given.
            groups: The groups that the person is in, for questions to groups.
            uses: What its signatures are believed for: "bundles", "decisions" or both.

        Raises:
            BadArguments: It is no such line, or another key of that name is trusted.

        Example:
            ```python
            ana = holdfast.Keys("hers").new("ana")
            holdfast.Keys("ours").trust(ana.public, groups=["it-admins"], uses=["decisions"])
            ```
        """
        may = tuple(dict.fromkeys(uses))
        if not may or any(use not in USES for use in may):
            raise BadArguments(f"uses={may!r}: use one or both of {', '.join(USES)}")
        told = _public_parts(public, name)
        told |= {"groups": [checked_name(group, "groups") for group in groups], "uses": list(may)}
        found = self._keep(told, "trusted")
        known = self._path(found.name, "known")
        if known.exists() and _read(known).id == found.id:
            known.unlink()  # it is trusted now, which is more
        return found

    def add(self, public: str, *, name: str | None = None) -> Key:
        """Know somebody else's key, so that bundles can be encrypted for its owner. Its signatures count for nothing.

        Args:
            public: The line of the key, as `key.public` and `holdfast key show` give it.
            name: The person; the name in the line unless given.

        Raises:
            BadArguments: It is no such line, another key of that name is known, or the key is trusted already.

        Example:
            ```python
            bob = holdfast.Keys("his").new("bob")
            holdfast.Keys("ours").add(bob.public)
            assert holdfast.Keys("ours").named("bob").uses == ()
            ```
        """
        told = _public_parts(public, name)
        id = _id(base64.b64decode(told["sign"]))
        for key in self._each():
            if key.kind == "trusted" and (key.id == id or key.name == told["name"]):
                raise BadArguments(
                    f"a key of {key.name!r} is trusted already, and bundles can be encrypted for that; it was not touched. To know "
                    f"it only, remove {str(self._path(key.name, 'trusted'))!r} first"
                )
        return self._keep(told | {"groups": [], "uses": []}, "known")

    def _keep(self, told: dict[str, Any], kind: str) -> Key:
        """Write the public part of a key; one of the same name must be the same."""
        path = self._path(told["name"], kind)
        if path.exists():
            if _read(path).id != _id(base64.b64decode(told["sign"])):
                raise BadArguments(
                    f"another key of {told['name']!r} is {kind} already; remove {str(path)!r} first, or name it otherwise"
                )
            path.unlink()
        self._write(path, told)
        return _read(path)

    def all(self) -> list[Key]:
        """List all keys, by name.

        Raises:
            BadArguments: A file in the folder is none of a key, or others may read a private one.

        Example:
            ```python
            names = [key.name for key in holdfast.Keys("keys").all()]
            ```
        """
        return sorted(self._each(), key=lambda key: (key.name, key.kind))

    def own(self, name: str | None = None) -> Key:
        """Find a key to sign with: the one of this name, else that of `HOLDFAST_KEY`, else the only one there is.

        Raises:
            BadArguments: There is none, or there are several.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            assert holdfast.Keys("keys").own().name == "ana"
            ```
        """
        wanted = name or os.environ.get("HOLDFAST_KEY")
        found = [key for key in self._each() if key.kind in ("own", "shared") and wanted in (None, key.name)]
        if len(found) == 1:
            return found[0]
        if not found:
            which = f"no key of {wanted!r}" if wanted else "no key to sign with"
            raise BadArguments(
                f"there is {which} in {str(self.folder)!r}; make one with `holdfast key new {wanted or 'NAME'}`"
            )
        raise BadArguments(
            f"several keys can sign: {', '.join(key.name for key in found)}; say which, with --key NAME, key= or $HOLDFAST_KEY"
        )

    def named(self, name: str) -> Key:
        """Find the key of a name, whosever it is.

        Raises:
            BadArguments: There is none.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            print(holdfast.Keys("keys").named("ana").public)
            ```
        """
        found = next((key for key in self._each() if key.name == name), None)
        if found is None:
            raise BadArguments(
                f"there is no key of {name!r} in {str(self.folder)!r}; `holdfast key list` lists those there are. To encrypt for "
                "somebody else, let them say `holdfast key show`, and here `holdfast key add LINE`"
            )
        return found

    def _each(self) -> Iterator[Key]:
        for pattern in ("*.key", "*.secret", "trusted/*.pub", "known/*.pub"):
            for path in sorted(self.folder.glob(pattern)):
                yield _read(path)

    def _path(self, name: str, kind: str) -> Path:
        public = kind in ("trusted", "known")
        return self.folder / kind / f"{name}.pub" if public else self.folder / f"{name}.{kind}"

    def _write(self, path: Path, told: dict[str, Any]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise BadArguments(f"{str(path)!r} cannot be written: {error.strerror}") from None
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(json.dumps(told, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())


def signer_of(keys: Keys, id: str, use: Use, by: str) -> Key:
    """Find the key that is said to have signed; `BadBundle` if it is not known here, or not for this use."""
    found = min((key for key in keys.all() if key.id == id), key=lambda key: key.kind == "known", default=None)
    if found is None or found.kind == "known":
        raise BadBundle(
            f"it is signed with a key of {by!r} ({id}) that is not trusted here; get their public line, and "
            "`holdfast key trust LINE`"
        )
    if use not in found.uses:
        raise BadBundle(
            f"the key of {found.name!r} is trusted for {' and '.join(found.uses)} here, and not for {use}; `holdfast key trust "
            "LINE` trusts it for both"
        )
    return found


def _checked(name: str) -> str:
    if not isinstance(name, str) or not _FILE.fullmatch(name) or name.startswith((".", "-")):
        raise BadArguments(
            f"{name!r} cannot name a key; use 1 to 100 letters, digits or any of '_ . @ -', for example 'ana'"
        )
    return name


def _read(path: Path) -> Key:
    try:
        if path.suffix != ".pub" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise BadArguments(
                f"others may read the private key {str(path)!r}: anybody may have it. `chmod 600` it, or make another"
            )
        with path.open("rb") as file:
            told = json.loads(file.read(_MOST))
        return _key(path, told)
    except OSError as error:
        raise BadArguments(f"the key {str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, BadArguments):
            raise
        raise BadArguments(f"{str(path)!r} is not the file of a key; remove it, or bring it back as it was") from None


def _key(path: Path, told: dict[str, Any]) -> Key:
    name = _checked(told["name"])
    if path.suffix == ".secret":
        secret = _exactly(told["secret"])
        return Key(name, _id(b"shared" + secret), "shared", _verify=secret)
    if path.suffix == ".pub":
        verify, receive = _exactly(told["sign"]), _exactly(told["receive"])
        groups, uses = tuple(map(str, told["groups"])), tuple(use for use in USES if use in told["uses"])
        kind: Literal["trusted", "known"] = "known" if path.parent.name == "known" else "trusted"
        if kind == "known":
            groups, uses = (), ()
        return Key(name, _id(verify), kind, groups, uses, _line(name, verify, receive), verify, receive)
    sign, opens = _exactly(told["sign"]), _exactly(told["receive"])
    verify = _ed25519().Ed25519PrivateKey.from_private_bytes(sign).public_key().public_bytes_raw()
    receive = _x25519().X25519PrivateKey.from_private_bytes(opens).public_key().public_bytes_raw()
    return Key(name, _id(verify), "own", public=_line(name, verify, receive), _verify=verify, _receive=receive,
               _private=(sign, opens))  # fmt: skip


def _line(name: str, verify: bytes, receive: bytes) -> str:
    return f"{_PUBLIC} {name} ed25519:{_base64(verify)} x25519:{_base64(receive)}"


def _id(verify: bytes) -> str:
    return hashlib.sha256(b"holdfast key\n" + verify).hexdigest()[:32]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _exactly(text: str) -> bytes:
    content = base64.b64decode(text, validate=True)
    if len(content) != _SECRET_BYTES:
        raise ValueError(text)
    return content


def _public_parts(public: str, name: str | None) -> dict[str, Any]:
    """Read the line of a public key."""
    words = public.split() if isinstance(public, str) else []
    if len(words) != 4 or words[0] != _PUBLIC:
        raise BadArguments(f"this is not the line of a public key; `holdfast key show` prints it: {_PUBLIC} NAME ...")
    parts = {"sign": _tagged(words[2], "ed25519"), "receive": _tagged(words[3], "x25519")}
    return {"name": _checked(name or words[1]), **parts}


def _tagged(word: str, kind: str) -> str:
    tag, _, text = word.partition(":")
    try:
        if tag != kind:
            raise ValueError(word)
        return _base64(_exactly(text))
    except (binascii.Error, ValueError):
        raise BadArguments(
            f"the line of a public key has {kind}:... in it, and this one has not; copy it whole"
        ) from None


# Encryption: a bundle has a random key of its own, which is wrapped for its recipient


class ContentKey:
    """The key of one bundle. The place of a section is its nonce, so no two are encrypted alike."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def encrypt(self, place: int, content: bytes) -> bytes:
        """Encrypt a section."""
        return bytes(_aead()(self._secret).encrypt(place.to_bytes(12, "big"), content, None))

    def decrypt(self, place: int, content: bytes) -> bytes:
        """Decrypt a section; `BadBundle` if it was not encrypted so."""
        try:
            return bytes(_aead()(self._secret).decrypt(place.to_bytes(12, "big"), content, None))
        except _crypto().InvalidTag:
            raise BadBundle("a part of it cannot be decrypted: it was changed, or is another bundle's") from None


def sealed_for(recipient: Key) -> tuple[ContentKey, dict[str, str]]:
    """Make the key of a bundle, and what the manifest says of it: for whom, and the key as only they can read it."""
    if recipient.kind == "shared":
        raise BadArguments(
            f"the key of {recipient.name!r} is a shared secret, which only signs; encrypt for a key with a public line"
        )
    once = _x25519().X25519PrivateKey.generate()
    shared = once.exchange(_x25519().X25519PublicKey.from_public_bytes(recipient._receive))
    secret, public = secrets.token_bytes(32), once.public_key().public_bytes_raw()
    wrapped = _aead()(_derived(shared, public, recipient._receive)).encrypt(bytes(12), secret, None)
    return ContentKey(secret), {
        "for": recipient.id, "name": recipient.name, "once": _base64(public), "key": _base64(wrapped)
    }  # fmt: skip


def opened(sealed: dict[str, str], keys: Keys) -> ContentKey:
    """Unwrap the key of a bundle; `BadBundle` if it is for somebody else."""
    mine = next((key for key in keys.all() if key.kind == "own" and key.id == sealed.get("for")), None)
    if mine is None:
        raise BadBundle(
            f"it is encrypted for {sealed.get('name', 'somebody')!r}, whose key is not here; only they can read it"
        )
    try:
        public, wrapped = _exactly(sealed["once"]), base64.b64decode(sealed["key"], validate=True)
        shared = (
            _x25519()
            .X25519PrivateKey.from_private_bytes(mine._private[1])
            .exchange(_x25519().X25519PublicKey.from_public_bytes(public))
        )
        return ContentKey(bytes(_aead()(_derived(shared, public, mine._receive)).decrypt(bytes(12), wrapped, None)))
    except (KeyError, ValueError, _crypto().InvalidTag):
        raise BadBundle("how it is encrypted was changed after it was made") from None


def _derived(shared: bytes, once: bytes, recipient: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - only signers need it
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(SHA256(), 32, None, _INFO + once + recipient).derive(shared)


def _need() -> BadArguments:
    return BadArguments('keys need cryptography, which is not installed: pip install "holdfast[bundles]"')


@functools.cache
def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - only signers need it
    except ImportError:
        raise _need() from None
    return ed25519


@functools.cache
def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - only signers need it
    except ImportError:
        raise _need() from None
    return x25519


@functools.cache
def _aead() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415 - only for what is encrypted
    except ImportError:
        raise _need() from None
    return ChaCha20Poly1305


@functools.cache
def _crypto() -> Any:
    try:
        from cryptography import exceptions  # noqa: PLC0415 - only signers need it
    except ImportError:
        raise _need() from None
    return exceptions
