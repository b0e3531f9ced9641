"""Prometheus metrics of a server."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from weft.serve.access_log import AccessLog

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServeMetrics:
    """The metrics of one process; with `shared`, those of all workers are shown together."""

    def __init__(self, log: "AccessLog", shared: bool = False):
        self._log, self._shared = log, shared
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "weft_requests_total", "Requests answered.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "weft_request_seconds", "Time from a request to its answer.", ["route"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.texts = Counter("weft_texts_total", "Texts answered.", ["model"], registry=registry)
        self.queue = Gauge(
            "weft_queue_requests", "Requests waiting or computed.", registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self.batch_texts = Histogram(
            "weft_batch_texts", "Texts computed together.", buckets=SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            "weft_batch_seconds", "Time to compute a batch.", buckets=SECONDS, registry=registry
        )
        self.dropped = Counter(
            "weft_dropped_total", "Requests dropped before they were computed.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.ready = Gauge(
            "weft_ready", "1 if the models are loaded and verified.", registry=registry,
            multiprocess_mode="livemin",
        )  # fmt: skip
        self.reloads = Counter(
            "weft_reloads_total", "Reloads of models.", ["result"], registry=registry
        )
        self.shadow = Counter(
            "weft_shadow_total", "Answers compared with those of the shadow model.",
            ["model", "result"], registry=registry,
        )  # fmt: skip
        self.drift = Gauge(
            "weft_drift_distance", "Distance of live texts from those of training, 0 to 1.",
            ["model", "trait"], registry=registry, multiprocess_mode="livemax",
        )  # fmt: skip
        self.drift_p = Gauge(
            "weft_drift_p_value", "Probability of such a distance without drift.", ["model"],
            registry=registry, multiprocess_mode="livemin",
        )  # fmt: skip
        # By route and status: to find the children of their labels takes longer than to count.
        self._counters: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        for reason in ("disconnected", "expired"):
            self.dropped.labels(reason)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        counter = self._counters.get((route, status))
        if counter is None:
            counter = self.requests.labels(route, str(status)), self.seconds.labels(route)
            self._counters[route, status] = counter
        counter[0].inc()
        counter[1].observe(seconds)

    def observe_batch(self, texts: int, seconds: float) -> None:
        self.batch_texts.observe(texts)
        self.batch_seconds.observe(seconds)

    def count_drop(self, reason: str) -> None:
        self.dropped.labels(reason).inc()

    def report_failure(self, error: BaseException) -> None:
        """Write an unexpected error to the log, with its traceback."""
        self._log.write_failure(error)

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        if not self._shared:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
