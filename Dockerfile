# tipchain with both frameworks' CPU builds, for the CI of a suite or a port.
#   docker build -t tipchain .
#   docker run --rm -v "$PWD:/work" tipchain tipchain align configs/alexnet.yaml
# PIP_EXTRA_INDEX_URL may name an index with CPU builds of torch, which spares gigabytes of CUDA packages.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# What Paddle loads (libgomp1) and what suites' OpenCV does (libgl1, libglib2.0-0); git tells a run's commit.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends git libgl1 libglib2.0-0 libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory '*'

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1
ARG EXTRAS=cpu,cases,stats,onnx
ARG PIP_EXTRA_INDEX_URL
# The address that the package's metadata lead to; the build has no clone to ask.
ARG TIPCHAIN_REPOSITORY

COPY LICENSE README.md constraints.txt hatch_build.py pyproject.toml /opt/tipchain/
COPY tipchain /opt/tipchain/tipchain
RUN pip install -c /opt/tipchain/constraints.txt "/opt/tipchain[${EXTRAS}]"

# CI services mount their checkouts as root's.
WORKDIR /work
CMD ["tipchain", "doctor"]
