# docker build -t vflpriv .   and   docker run --rm -v "$PWD:/work" vflpriv audit audit.toml
FROM python:3.11 AS build
COPY . /source
# With a compiler, so that random numbers are drawn in C; the image below has none.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
# The wheels of this address are torch without CUDA.
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c /tmp/constraints.txt /wheels/*.whl
RUN useradd --create-home auditor
USER auditor
WORKDIR /work
ENTRYPOINT ["vflpriv"]
CMD ["--help"]
