"""Numbers in words, on both sides of every change of unit or digits."""

import pytest

from weft.compare import format


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (format.format_p_value, None, "–"),
        (format.format_p_value, 0.00099, "<0.001"),
        (format.format_p_value, 0.001, "0.001"),
        (format.format_p_value, 0.0994, "0.099"),
        (format.format_p_value, 0.1, "0.10"),
        (format.format_duration, 99.94, "99.9 s"),
        (format.format_duration, 100, "1 min 40 s"),
        (format.format_duration, 605.4, "10 min 05 s"),
        (format.short_duration, 99.94, "99.9 s"),
        (format.short_duration, 100, "1.7 min"),
        (format.format_milliseconds, 9.994, "9.99"),
        (format.format_milliseconds, 10, "10.0"),
        (format.format_milliseconds, 99.94, "99.9"),
        (format.format_milliseconds, 100, "100"),
        (format.format_count, 1234.5, "1,234"),
        (format.human_count, 99_999, "99,999"),
        (format.human_count, 100_000, "100 k"),
        (format.human_count, 999_000, "999 k"),
        (format.human_count, 1_000_000, "1 M"),
        (format.human_count, 1_520_000, "1.52 M"),
        (format.human_count, 2_500_000_000, "2.5 G"),
        (format.format_size, 999, "999 B"),
        (format.format_size, 5, "5 B"),
        (format.format_size, 1000, "1.0 kB"),
        (format.format_size, 9_940, "9.9 kB"),
        (format.format_size, 10_000, "10 kB"),
        (format.format_size, 1_000_000, "1.0 MB"),
        (format.format_size, 2_500_000_000, "2.5 GB"),
        (lambda v: format.format_metric(v, "accuracy"), 0.9312, "93.1"),
        (lambda v: format.format_metric(v, "bleu"), 31.25, "31.2"),
        (lambda v: format.format_metric(v, "pearson"), 0.12345, "0.123"),
        (lambda v: format.format_metric(v, "perplexity"), 9.9994, "9.999"),
        (lambda v: format.format_metric(v, "perplexity"), 10, "10.00"),
        (lambda v: format.format_metric(v, "perplexity"), 100, "100.0"),
        (lambda v: format.format_metric(v, "perplexity"), 1000, "1,000"),
        (lambda v: format.format_metric(v, "perplexity"), None, "–"),
    ],
)
def test_numbers_in_words(function, value, text):
    assert function(value) == text


def test_names_of_metrics():
    assert format.metric_name("bleu") == "BLEU"
    assert format.metric_name("macro_f1") == "macro-F1"
    assert format.is_percent("a_column_of_the_data")
    assert not format.is_percent("mse")
