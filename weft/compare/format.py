"""How numbers are written for people: in tables, sentences and pages."""

# Shown as they are: correlations, errors, counts. Everything else is a share, whatever the column
# of a file that it is named after.
PLAIN = {
    *("pearson", "spearman", "matthews", "mse", "rmse", "mae", "r2", "loss", "crossing", "quality"),
    *("perplexity", "token_perplexity", "perplexity_known", "bits_per_character"),
    "backward_perplexity",
    *("pseudo_perplexity", "bleu", "bleu_lower", "bleu_tokenised", "chrf", "nist", "cider"),
}
TENTHS = {"bleu", "bleu_lower", "bleu_tokenised", "chrf"}  # from 0 to 100 already
NAMES = {
    "bleu": "BLEU",
    "bleu_lower": "BLEU, lower case",
    "bleu_tokenised": "BLEU, tokenised",
    "chrf": "chrF",
    "nist": "NIST",
    "cider": "CIDEr",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match",
    "slot_error": "slot error",
    "faultless": "faultless",
    "token_accuracy": "token accuracy",
    "token_perplexity": "perplexity per token",
    "perplexity_known": "perplexity of known words",
    "pseudo_perplexity": "pseudo-perplexity",
    "backward_perplexity": "perplexity from the end",
    "bits_per_character": "bits per character",
    "unknown": "unknown words",
}


BRIEF = {
    "exact_match": "exact",
    "token_perplexity": "per token",
    "backward_perplexity": "from the end",
    "bits_per_character": "bits/char",
    "unknown": "unknown",
}


def called(metric: str) -> str:
    """A figure's name for people."""
    return NAMES.get(metric, metric.replace("_f1", "-F1"))


def percent(metric: str) -> bool:
    """Whether a figure is a share, and so written as a percentage."""
    return metric not in PLAIN


def figure(value: float | None, metric: str) -> str:
    """A quality as people write it: 93.1 for an accuracy of 0.931, a perplexity in four digits."""
    if value is None:
        return "–"
    if percent(metric):
        return f"{100 * value:.1f}"
    if metric in TENTHS:
        return f"{value:.1f}"
    if "perplexity" in metric:
        digits = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
        return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def chance(p: float | None) -> str:
    """A probability as tables give it: two digits, and never zero."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def brief(seconds: float | None) -> str:
    """A duration for a narrow column."""
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def about(value: float | None) -> str:
    """A large count, as people say it: 1.52 M."""
    if value is None or value < 100_000:
        return count(value)
    for unit in ("k", "M"):
        value /= 1000
        if value < 1000:
            return f"{value:.3g} {unit}"
    return f"{value / 1000:.3g} G"


def size(value: float | None) -> str:
    """Bytes, in the unit that keeps the number short."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
