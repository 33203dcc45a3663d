"""A provider of OpenID Connect for tests: real HTTP over loopback, real keys and signatures, and every way to be wrong."""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey


def _encoded(part):
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


class OidcProvider:
    """Signs in whoever comes, as the person it is told; `spoil` changes what it does. `asks`: it has a page with two links.

    As localhost it is another site than a server at 127.0.0.1, to which browsers send fewer cookies.
    """

    def __init__(self, host="127.0.0.1", *, asks=False):
        self.asks = asks
        self.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        self.person = {"sub": "u-1", "email": "ana@example.com", "email_verified": True, "groups": ["editors", "staff"]}
        self.spoil = {}  # claims in the place of the right ones; None leaves one out
        self.how = "right"  # or: none, hmac, forged, unsigned
        self.codes, self.asked, self.uses = {}, [], 0
        self.keeps_codes = False  # a bad provider: a code is good again
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.get(self)

            def do_POST(self):
                outer.post(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, request):
        url = urlsplit(request.path)
        self.asked.append(url.path)
        if url.path == "/.well-known/openid-configuration":
            paths = {"authorization_endpoint": "/go", "token_endpoint": "/token", "jwks_uri": "/keys"}
            self.answer(request, {"issuer": self.issuer} | {name: self.issuer + path for name, path in paths.items()})
        elif url.path == "/keys":
            self.answer(request, {"keys": [self.key.as_dict(private=False)]})
        elif url.path == "/go":
            given = {name: values[0] for name, values in parse_qs(url.query).items()}
            assert (
                given["response_type"] == "code"
                and given["code_challenge_method"] == "S256"
                and "openid" in given["scope"]
            )
            code = secrets.token_urlsafe(16)
            self.codes[code] = given
            allowed, denied = (
                f"{given['redirect_uri']}?{urlencode({**told, 'state': given['state']})}"
                for told in ({"code": code}, {"error": "access_denied"})
            )
            if self.asks:
                page = f"<a href='{escape(allowed)}'>Allow</a> <a href='{escape(denied)}'>Deny</a>"
                self.answer(request, page.encode(), "text/html")
                return
            request.send_response(302)
            request.send_header("Location", allowed)
            request.end_headers()
        else:
            request.send_error(404)

    def post(self, request):
        form = parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode())
        form = {name: values[0] for name, values in form.items()}
        self.uses += 1
        begun = self.codes.get(form["code"]) if self.keeps_codes else self.codes.pop(form["code"], None)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        )
        login = base64.b64decode(request.headers.get("Authorization", "Basic Og==").split()[1]).decode()
        if (
            begun is None
            or challenge != begun["code_challenge"]
            or form["redirect_uri"] != begun["redirect_uri"]
            or login != "holdfast-1:s3cret"
        ):
            request.send_error(400)
            return
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "holdfast-1",
            "iat": now,
            "exp": now + 300,
            "nonce": begun["nonce"],
            **self.person,
        }
        claims = {name: value for name, value in (claims | self.spoil).items() if value is not None}
        self.answer(request, {"access_token": "x", "token_type": "Bearer", "id_token": self.signed(claims)})

    def signed(self, claims):
        header = {"alg": "RS256", "kid": "k1"}
        if self.how in ("none", "hmac"):
            told = {"alg": "none"} if self.how == "none" else {"alg": "HS256", "kid": "k1"}
            text = ".".join(_encoded(json.dumps(part).encode()) for part in (told, claims))
            public = self.key.as_pem(private=False)  # as the secret, which everybody has
            return f"{text}." + (_encoded(hmac.digest(public, text.encode(), "sha256")) if self.how == "hmac" else "")
        if self.how == "forged":
            return jwt.encode(header, claims, RSAKey.generate_key(2048, {"kid": "k1"}))
        made = jwt.encode(header, claims, self.key)
        if self.how == "unsigned":
            return made.rpartition(".")[0] + "."
        return made

    @staticmethod
    def answer(request, document, kind="application/json"):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
