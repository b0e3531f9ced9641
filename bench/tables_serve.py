"""How the figures of `weft serve` become tables."""

from tables import Figures, Row, Section, Table, mark, ranged, verdict

# Answers per second, times those of another server; of the Predictor without HTTP.
BARS = {
    ("tfidf", "fastapi-sklearn"): 2.0,
    ("fasttext", "fastapi-sklearn"): 2.0,
    ("minilm", "fastapi-transformers"): 2.5,
    ("minilm, int8", "fastapi-transformers"): 5.0,
    ("minilm", "Predictor.embed"): 0.8,
}
LITSERVE = 3.0
GOODPUT, RECOVERY, GROWN, MORE_MS = 0.9, 2.0, 50.0, 1.5
NEVER_COMPUTED = 0.95


def rate(line: Figures) -> Row:
    return (
        line["model"], line["system"], ranged(line["per_second"], 0), ranged(line["cpu_ms"], 3),
        ranged(line["client_ms"], 3), ranged(line["p50_ms"], 1), ranged(line["p99_ms"], 1),
        str(line["per_second"]["n"]),
    )  # fmt: skip


def ratio(line: Figures) -> Row:
    times, to = line["times"], line["to"]
    bar = LITSERVE if to.startswith("litserve") else BARS.get((line["model"], to))
    return (
        line["model"], to, ranged(times, 2, "×"), verdict(times["median"], bar), str(times["n"])
    )  # fmt: skip


def single(line: Figures) -> Row:
    more = line["more_ms"]
    return (
        line["model"], ranged(line["predictor_p50_ms"]), ranged(line["served_p50_ms"]),
        ranged(more), verdict(more["median"], MORE_MS, above=False), str(more["n"]),
    )  # fmt: skip


def answered(statuses: dict[str, int]) -> str:
    """How many requests ended with which status."""
    return ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items()))


def overload(line: Figures) -> Row:
    only = set(line["statuses"]) <= {"200", "503"}
    late, recovery = line["p99_ms"] > line["deadline_ms"], line["recovery_seconds"]
    return (
        line["model"], f"{line['offered_per_second']:,.0f} for {line['seconds']:g} s",
        f"{answered(line['statuses'])} {mark(only)}",
        f"{line['goodput']:.2f}", verdict(line["goodput"], GOODPUT),
        f"{line['p99_ms']:,} of {line['deadline_ms']:,} {mark(not late)}",
        f"{recovery:.1f}", verdict(recovery, RECOVERY, above=False),
        f"{line['rss_grown_mb']:+.0f}", f"{line['peak_grown_mb']:+.0f}",
        verdict(line["peak_grown_mb"], GROWN, above=False),
    )  # fmt: skip


def endurance(line: Figures) -> Row:
    grown = line["rss_grown_mb"]
    return (
        line["model"], f"{line['requests']:,}",
        f"{answered(line['statuses'])} {mark(set(line['statuses']) == {'200'})}",
        f"{line['per_second']:,.0f}", ", ".join(f"{one:+.1f}" for one in grown),
        verdict(max(grown), GROWN, above=False),
    )  # fmt: skip


def lost(line: Figures) -> Row:
    return (
        str(line.get("clients") or line.get("in_flight")),
        f"{line['reloads']:g}" if "reloads" in line else "–",
        f"{answered(line['statuses'])} {mark(set(line['statuses']) == {'200'})}",
        str(line.get("different_answers", "–")),
    )  # fmt: skip


def killed(line: Figures) -> Row:
    return str(line["workers"]), answered(line["statuses"]), f"{line['replaced_after_seconds']}"


def disconnected(line: Figures) -> Row:
    part = line["never_computed"]
    return (
        f"{line['clients']:,}", f"{part:.1%}", verdict(part, NEVER_COMPUTED),
        answered(line["others"]),
    )  # fmt: skip


def peers(line: Figures) -> Row:
    names = ("fastapi", "litserve", "uvicorn", "scikit-learn", "transformers", "torch")
    return tuple(str(line[name]) for name in names)


SECTIONS = (
    Section(
        "`weft serve`",
        "Servers on loopback and a load generator in a process of its own, all on the same two "
        "cores, in turns; single texts of the test part of the built-in reviews (90 characters at "
        "the median). Rates are median [lowest, highest]. The peers are handlers as one writes "
        "them: FastAPI with a scikit-learn pipeline (TF-IDF of one and two words, logistic "
        "regression) or with transformers; LitServe in batches of up to 32, which it waits 5 ms "
        "for or takes at once. Our tfidf counts n-grams of characters, too.",
        (
            Table(
                "serve rate",
                ("model", "server", "answers per second", "CPU ms a request", "of the clients",
                 "p50, ms", "p99, ms", "n"),
                rate, "32 clients.",
            ),
            Table("serve ratio", ("model", "to", "ours", "bar", "n"), ratio),
            Table(
                "serve single",
                ("model", "Predictor p50, ms", "served p50, ms", "more, ms", "bar", "n"), single,
                "One client.",
            ),
            Table(
                "serve overload",
                ("model", "offered", "answers", "goodput", "bar", "p99, ms", "recovery, s", "bar",
                 "RSS, MB", "peak, MB", "bar"),
                overload,
                "Three times the requests per second that 32 clients get answered. Goodput is the "
                "part of these that is answered still; memory is compared before and three seconds "
                "after.",
            ),
            Table(
                "serve endurance",
                ("model", "requests", "answers", "per second", "RSS, MB, after each tenth", "bar"),
                endurance,
            ),
            Table(
                "serve reload", ("clients", "reloads", "answers", "different answers"), lost,
                "SIGHUP while clients ask the same text.",
            ),
            Table(
                "serve stop", ("in flight", "reloads", "answers", "different answers"), lost,
                "SIGTERM with requests in flight.",
            ),
            Table("serve killed", ("workers", "answers", "replaced after, s"), killed,
                  "kill -9 of one worker; status 0 are connections that it held."),
            Table("serve disconnected", ("clients that left", "never computed", "bar", "others"),
                  disconnected),
            Table("serve peers",
                  ("fastapi", "litserve", "uvicorn", "scikit-learn", "transformers", "torch"),
                  peers, "Versions of the peers."),
        ),
    ),
)  # fmt: skip
