"""Format numbers for tables, sentences and pages."""

from weft.metrics.value import base_name

# Shown as they are: correlations, errors, counts. Every other metric is a fraction, even one named
# after a column of the data.
NON_PERCENT_METRICS = {
    *("pearson", "spearman", "matthews", "mse", "rmse", "mae", "r2", "loss", "crossing", "quality"),
    *("perplexity", "token_perplexity", "perplexity_known", "bits_per_character"),
    "backward_perplexity",
    *("pseudo_perplexity", "bleu", "bleu_lower", "bleu_tokenised", "chrf", "nist", "cider"),
}
ONE_DECIMAL_METRICS = {"bleu", "bleu_lower", "bleu_tokenised", "chrf"}  # from 0 to 100 already
METRIC_NAMES = {
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
    "perplexity_known": "in-vocabulary perplexity",
    "pseudo_perplexity": "pseudo-perplexity",
    "backward_perplexity": "backward perplexity",
    "bits_per_character": "bits per character",
    "unknown": "unknown words",
    "coverage_at_95": "coverage at 95 % accuracy",
}


SHORT_NAMES = {
    "exact_match": "exact",
    "token_perplexity": "per token",
    "backward_perplexity": "backward",
    "bits_per_character": "bits/char",
    "unknown": "unknown",
    "coverage_at_95": "coverage@95",
}


def metric_name(metric: str) -> str:
    """Return the display name of a metric."""
    return METRIC_NAMES.get(metric, metric.replace("_f1", "-F1"))


def is_percent(metric: str) -> bool:
    """Return True if a metric is a fraction, shown as a percentage."""
    return base_name(metric) not in NON_PERCENT_METRICS


def format_metric(value: float | None, metric: str) -> str:
    """Format a metric: 93.1 for an accuracy of 0.931, perplexities in four digits."""
    if value is None:
        return "–"
    if is_percent(metric):
        return f"{100 * value:.1f}"
    if metric in ONE_DECIMAL_METRICS:
        return f"{value:.1f}"
    if "perplexity" in metric:
        digits = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
        return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def format_p_value(p: float | None) -> str:
    """Format a p-value in two or three decimals, never as zero."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def short_duration(seconds: float | None) -> str:
    """Format a duration for a narrow column."""
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def format_milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def format_count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def human_count(value: float | None) -> str:
    """Format a large count: 1.52 M."""
    if value is None or value < 100_000:
        return format_count(value)
    for unit in ("k", "M"):
        value /= 1000
        if value < 1000:
            return f"{value:.3g} {unit}"
    return f"{value / 1000:.3g} G"


def format_size(value: float | None) -> str:
    """Format bytes in the unit that keeps the number short."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
