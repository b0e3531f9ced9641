"""weft serve"""

import socket
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.errors import MissingLibrary, UserError, optional_import

LIBRARIES = ("starlette", "uvicorn", "httptools", "msgspec", "prometheus_client")


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help="Model or run folders; NAME=FOLDER.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: a free one.")] = 8000,
    workers: Annotated[
        int, typer.Option(help="Processes that share the port, each with its models.")
    ] = 1,
    key_file: Annotated[
        Path | None, typer.Option(help="File of keys: NAME KEY [REQUESTS_PER_SECOND] a line.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Listen on another host without keys.")
    ] = False,
    max_queue: Annotated[int, typer.Option(help="Requests that may wait; others get 503.")] = 1024,
    deadline_ms: Annotated[
        int, typer.Option(help="Milliseconds in which a request is answered, or gets 503.")
    ] = 10_000,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens computed together, padding included (estimated).")
    ] = 2048,
    max_bytes: Annotated[int, typer.Option(help="Bytes of a request body.")] = 4 << 20,
    max_texts: Annotated[int, typer.Option(help="Texts of a request.")] = 2048,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a request (estimated).")] = 200_000,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens that a request generates.")] = 1024,
    max_connections: Annotated[int, typer.Option(help="Open connections.")] = 1024,
    drain_seconds: Annotated[
        float, typer.Option(help="Time to answer what is waiting after SIGTERM.")
    ] = 30.0,
    shadow: Annotated[
        str,
        typer.Option(help="Model that answers the same texts in idle time: [NAME=]FOLDER."),
    ] = "",
    shadow_log: Annotated[
        Path | None, typer.Option(help="File of texts that the shadow model answers differently.")
    ] = None,
    access_log: Annotated[bool, typer.Option(help="Log each request to standard error.")] = True,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Also log the texts of requests.")
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser when ready.")
    ] = False,
    device: options.Device = "auto",
    rounded: options.Int8 = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Serve models over HTTP: answers, explanations, embeddings and generated texts."""
    for name in LIBRARIES:
        try:
            optional_import(name, "`weft serve`")
        except MissingLibrary:
            raise UserError(
                "`weft serve` needs more libraries: pip install 'weft[serve]'."
            ) from None
    from weft.serve.server import Server, open_socket, server_url
    from weft.serve.service import Service, name_models
    from weft.serve.settings import ServeSettings
    from weft.serve.workers import Supervisor, reserve_port

    if workers > 1 and not hasattr(socket, "SO_REUSEPORT"):
        raise UserError("--workers needs SO_REUSEPORT, which this system lacks. Use one worker.")
    settings = ServeSettings(
        host=host, port=port, workers=workers, key_file=key_file, no_auth=no_auth,
        max_queue=max_queue, deadline_ms=deadline_ms, batch_tokens=batch_tokens,
        max_bytes=max_bytes, max_texts=max_texts, max_tokens=max_tokens,
        max_new_tokens=max_new_tokens, max_connections=max_connections,
        drain_seconds=drain_seconds, shadow=shadow, shadow_log=shadow_log,
        access_log=access_log, log_texts=log_texts,
        device=device, weights=options.weight_dtype(rounded),
        trust=tuple(trust),
    )  # fmt: skip
    sources = name_models(models)
    sock = open_socket(host, port) if workers == 1 else reserve_port(host, port)
    url = server_url(sock, host)

    def announce() -> None:
        typer.echo(f"serving {', '.join(one.name for one in sources)} at {url}", err=True)
        if open_page:
            typer.launch(url)

    if workers == 1:
        Server(Service(sources, settings), sock, announce).run_until_stopped()
    else:
        Service(sources, settings)  # keys and hosts are checked here, not in every worker
        Supervisor(sources, settings, sock.getsockname()[1], announce).run()
