# A worker or a server, with everything the fleet needs (PostgreSQL, metrics, HTTP). Agents are yours: mount them at /app, or
# build on this:
#
#     FROM holdfast
#     COPY agents.py /app/
#
# The base is pinned by its digest, so a build is the same tomorrow; take tag and digest of a newer one for its fixes.
ARG PYTHON=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
# What changes seldom comes first. These are checked by their hashes.
COPY requirements/fleet.txt requirements/build.txt requirements/
RUN python -m venv /opt/holdfast \
 && /opt/holdfast/bin/pip install --require-hashes -r requirements/fleet.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN /opt/holdfast/bin/pip install --no-deps --no-build-isolation .

FROM ${PYTHON}
RUN groupadd --gid 10001 holdfast \
 && useradd --uid 10001 --gid holdfast --no-create-home --shell /usr/sbin/nologin holdfast \
 && install --directory --owner=holdfast --group=holdfast /app /data
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOLDFAST_URL=sqlite:/data/holdfast.db
WORKDIR /app
VOLUME /data
EXPOSE 9464 8010
USER 10001:10001
# The first SIGTERM drains: what runs may end within --grace, every run is given back, and the exit code is 0.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=9 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
ENTRYPOINT ["holdfast"]
CMD ["worker", "/app/agents.py", "--host", "0.0.0.0", "--port", "9464"]
