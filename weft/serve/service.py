"""A running service: its models, the compute thread, keys and metrics."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weft.doctor.drift import Fingerprint, load_fingerprint
from weft.errors import UserError, near_miss
from weft.export.runtime.metadata import is_export
from weft.loading import load
from weft.predict.predictor import Predictor, model_folder, saved_config
from weft.serve.access_log import AccessLog
from weft.serve.compute import Compute
from weft.serve.http_error import HttpError, Overloaded
from weft.serve.keys import Keys, read_keys
from weft.serve.metrics import ServeMetrics
from weft.serve.operations import can_embed, make_generator
from weft.serve.settings import ServeSettings
from weft.serve.shadow import Shadow
from weft.serve.traffic import Traffic

if TYPE_CHECKING:
    from weft.predict.generate import Generator


@dataclass(frozen=True)
class ModelSource:
    """A model by the name that clients use, and the folder it is loaded from."""

    name: str
    folder: str


@dataclass(eq=False)
class ServedModel:
    """A loaded model and what it can do."""

    source: ModelSource
    predictor: Predictor
    version: int
    embeds: bool
    generator: "Generator | None" = None
    traffic: Traffic | None = None  # None without a fingerprint of the training texts
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def task(self) -> str:
        return str(self.predictor.config["task"]["kind"])

    @property
    def answers(self) -> bool:
        """True if the model has answers, not only vectors."""
        return not self.predictor.task.gives_vectors


def name_models(given: Sequence[str]) -> list[ModelSource]:
    """Return the models of the command line, each FOLDER or NAME=FOLDER, with distinct names."""
    sources: dict[str, ModelSource] = {}
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals:
            name, folder = "", one
        if not name:
            path = Path(folder)
            name = path.parent.resolve().name if path.name == "model" else path.name
            name = name or path.resolve().name
        if name in sources:
            raise UserError(
                f"Two models are called '{name}'. Name one: weft serve {name}=FOLDER other=FOLDER."
            )
        sources[name] = ModelSource(name, folder)
    return list(sources.values())


def _fingerprint_of(source: ModelSource) -> Fingerprint | None:
    """Return the fingerprint of a model folder; a checkpoint has none."""
    try:
        folder = model_folder(Path(source.folder))
    except UserError:
        return None
    return load_fingerprint(folder)


def is_network(source: ModelSource) -> bool:
    """Return True for a model that runs in torch, and for a checkpoint; False for an export."""
    path = Path(source.folder)
    if is_export(path):
        return False
    try:
        return "classic" not in saved_config(model_folder(path) / "model.json")
    except UserError:
        return True


class Service:
    """The state of a server; changed only by its event loop."""

    compute: Compute

    def __init__(
        self, sources: Sequence[ModelSource], settings: ServeSettings, *, shared: bool = False
    ):
        self.sources, self.settings, self.shared = sources, settings, shared
        self.keys = (
            Keys([])
            if settings.key_file is None
            else read_keys(settings.key_file, settings.workers)
        )
        if not (self.keys or settings.is_loopback or settings.no_auth):
            raise UserError(
                f"--host {settings.host} can be reached from other machines: pass --key-file FILE "
                "with a line NAME KEY, or --no-auth to let everyone in."
            )
        self.log = AccessLog(settings.access_log)
        self.metrics = ServeMetrics(self.log, shared)
        self.models: dict[str, ServedModel] = {}
        self.shadow: Shadow | None = None
        self._shadow_source = self._find_shadow()
        self.is_loaded = self.draining = False
        self._version = 0
        self._reloading = asyncio.Lock()

    @property
    def is_ready(self) -> bool:
        """True while requests are welcome: models loaded and verified, and not draining."""
        return self.is_loaded and not self.draining

    def start(self) -> None:
        """Start the compute thread. Called in the event loop."""
        self.compute = Compute(
            asyncio.get_running_loop(),
            self.metrics,
            batch_tokens=self.settings.batch_tokens,
            max_queue=self.settings.max_queue,
            idle=lambda: self.shadow is not None and self.shadow.run_one(),
        )
        self.metrics.ready.set(self.is_ready)

    async def load(self) -> None:
        """Load all models; each replays its golden answers."""
        for source in self.sources:
            self.models[source.name] = await self._load(source)
        if self._shadow_source is not None:
            source = self._shadow_source
            other = (await self._load(source)).predictor
            self.shadow = Shadow(source.name, other, self.metrics, self.settings.shadow_log)
        self.is_loaded = True
        self.metrics.ready.set(1)

    def _find_shadow(self) -> ModelSource | None:
        """Return the shadow model under the name of the model whose texts it answers."""
        if not self.settings.shadow:
            return None
        name, equals, folder = self.settings.shadow.partition("=")
        if not equals:
            name, folder = self.sources[0].name, self.settings.shadow
        if name not in {source.name for source in self.sources}:
            raise UserError(f"--shadow {self.settings.shadow}: no model is called '{name}'.")
        return ModelSource(name, folder)

    async def reload(self, name: str = "") -> list[str]:
        """Load models again beside the present ones, and swap them if their answers replay.

        Requests that wait are answered by the model that they were sent to. On an error, which is
        a UserError, everything stays as it is.
        """
        sources = [self.find_model(name).source] if name else self.sources
        async with self._reloading:
            try:
                fresh = [await self._load(source) for source in sources]
            except UserError:
                self.metrics.reloads.labels("refused").inc()
                raise
            for model in fresh:
                self.models[model.name] = model
            self.metrics.reloads.labels("done").inc()
        self.log.write_event("reload", models=[model.name for model in fresh])
        return [model.name for model in fresh]

    async def _load(self, source: ModelSource) -> ServedModel:
        self._version += 1
        version = self._version
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self._read(source, version))

    def _read(self, source: ModelSource, version: int) -> ServedModel:
        settings = self.settings
        predictor = load(
            source.folder, device=settings.device, weights=settings.weights, trust=settings.trust
        )
        generator = make_generator(predictor)
        fingerprint = _fingerprint_of(source)
        labels = predictor.class_labels
        traffic = None if fingerprint is None else Traffic(fingerprint, labels)
        embeds = can_embed(predictor)
        return ServedModel(source, predictor, version, embeds, generator, traffic)

    def find_model(self, name: str) -> ServedModel:
        """Return the model of a request; the first without a name."""
        if not self.is_loaded:
            raise Overloaded("The models are being loaded. Try again soon.")
        if not name:
            return next(iter(self.models.values()))
        if name not in self.models:
            hint = near_miss(name, self.models)
            raise HttpError(404, f"Unknown model '{name:.60}'.{hint} See /v1/models.")
        return self.models[name]

    def update_queue(self) -> None:
        """Write the length of the queue to the metrics."""
        self.metrics.queue.set(self.compute.depth)

    def update_drift(self) -> None:
        """Write the drift of all models to the metrics."""
        for model in self.models.values():
            if model.traffic is None:
                continue
            drift = model.traffic.drift()
            for trait in drift.traits:
                self.metrics.drift.labels(model.name, trait.name).set(trait.distance)
            if drift.traits:
                self.metrics.drift_p.labels(model.name).set(drift.p)

    async def drain(self, seconds: float) -> None:
        """Stop being ready and wait until every request is answered, at most `seconds`."""
        self.draining = True
        self.metrics.ready.set(0)
        end = time.monotonic() + seconds
        while self.compute.depth and time.monotonic() < end:
            await asyncio.sleep(0.02)
