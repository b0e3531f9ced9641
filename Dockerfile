# A server for models that are mounted at /models:
#     docker build -t weft .
#     docker run -p 8000:8000 -v ./runs:/models:ro -v ./keys.txt:/keys.txt:ro weft \
#         /models/reviews --key-file /keys.txt
# Without torch, for what `weft export --to onnx` writes:
#     docker build -t weft-small --target small .
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY weft weft
RUN python -m venv /venv

FROM build AS build-small
RUN /venv/bin/pip install --no-cache-dir -c constraints.txt numpy tokenizers safetensors \
        onnxruntime typer rich starlette uvicorn httptools uvloop msgspec prometheus-client \
    && /venv/bin/pip install --no-cache-dir --no-deps .

FROM build AS build-full
# The CPU build of torch is a tenth of the size of the CUDA build.
RUN /venv/bin/pip install --no-cache-dir -c constraints.txt \
        --index-url https://download.pytorch.org/whl/cpu torch \
    && /venv/bin/pip install --no-cache-dir -c constraints.txt ".[serve]"

FROM python:3.12-slim AS server
RUN useradd --create-home --uid 10001 weft
USER weft
WORKDIR /home/weft
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["weft", "serve", "--host", "0.0.0.0", "--port", "8000"]

FROM server AS small
COPY --from=build-small /venv /venv

FROM server
COPY --from=build-full /venv /venv
