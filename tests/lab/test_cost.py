"""Cost and scaling: power laws against numpy, counts against formulas, tiny runs end to end."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from weft.batch import Padded
from weft.cli.main import app
from weft.errors import UserError
from weft.lab.cost import (
    WIDTH,
    build_encoder,
    count_kept_bytes,
    count_operations,
    count_sequential_steps,
    measure_costs,
)
from weft.lab.power_law import fit_power_law
from weft.lab.scaling import Point, fit_laws, measure_scaling


def test_a_power_law_is_a_line_through_logarithms():
    rng = np.random.default_rng(0)
    x = [3.0, 7.0, 19.0, 50.0, 130.0]
    y = [2.5 * n**-0.3 * math.exp(0.05 * rng.normal()) for n in x]
    law = fit_power_law(x, y)
    (slope, constant), covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    assert law.exponent == pytest.approx(slope, abs=1e-9)
    assert law.factor == pytest.approx(math.exp(constant), rel=1e-9)
    reach = 3.182446 * math.sqrt(covariance[0, 0])  # t of 3 degrees of freedom
    assert (law.low, law.high) == pytest.approx((slope - reach, slope + reach), abs=1e-6)
    low, high = law.interval(300)
    assert low < law.at(300) < high


def test_the_interval_of_a_new_point_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    x, inside = [1.0, 2.0, 4.0, 8.0, 16.0], 0
    for _ in range(400):
        y = [3 * n**0.5 * math.exp(0.1 * rng.normal()) for n in (*x, 64.0)]
        low, high = fit_power_law(x, y[:5]).interval(64)
        inside += low < y[5] < high
    assert 0.92 < inside / 400 < 0.98


def test_too_few_points_are_refused():
    with pytest.raises(UserError, match="three different sizes"):
        fit_power_law([1, 2, 2], [1, 2, 2])
    with pytest.raises(UserError, match="above zero"):
        fit_power_law([1, 2, 3], [1, 0, 2])


def test_counts_follow_the_formulas():
    def source(length):
        return Padded(torch.zeros(1, length, WIDTH), torch.tensor([length]))

    lstm, cnn, attention = map(build_encoder, ("lstm", "cnn", "self-attention"))
    assert count_operations(lstm, source(7)) == 7 * 2 * 8 * WIDTH**2
    assert count_operations(cnn, source(7)) == 7 * 2 * 3 * WIDTH**2
    linear = 2 * (4 + 8) * WIDTH**2  # projections and feed-forward, for each word
    assert count_operations(attention, source(7)) == 7 * linear + 7 * 7 * 4 * WIDTH
    assert count_sequential_steps(lstm, 7) == 7
    assert count_sequential_steps(build_encoder("lstm:layers=2"), 7) == 14
    assert count_sequential_steps(cnn, 7) == count_sequential_steps(attention, 7) == 1
    weights = [count_kept_bytes(attention, source(n)) for n in (64, 128, 256)]
    assert weights[2] - weights[1] > 2.5 * (weights[1] - weights[0])  # towards 4


def test_encoders_and_lengths_are_checked():
    with pytest.raises(UserError, match="Did you mean 'lstm'"):
        build_encoder("lstn")
    with pytest.raises(UserError, match="key=value"):
        build_encoder("lstm:2")
    with pytest.raises(UserError, match="three different lengths"):
        measure_costs(["cnn"], [4, 8])


def test_weft_lab_cost(tmp_path):
    words = ["lab", "cost", "--encoders", "cnn,lstm", "--lengths", "8,16,32", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "cost.json").read_text())
    assert [row["encoder"] for row in rows] == ["cnn", "lstm"]
    assert rows[1]["exponents"]["sequential_steps"][0] == pytest.approx(1)
    assert "words in the text" in (tmp_path / "cost.html").read_text()


def test_laws_compare_only_what_is_comparable():
    def point(size, fraction, loss):
        return Point(size, fraction, size * 10, int(1000 * fraction), size * 60.0, loss)

    points = [point(n, 1.0, 5 * n**-0.2) for n in (2, 4, 8)]
    laws = fit_laws(points)
    assert set(laws) == {"parameters", "compute"}
    assert laws["parameters"].exponent == pytest.approx(-0.2)
    points += [point(8, part, 5 * 8**-0.2 * part**-0.1) for part in (0.25, 0.5)]
    assert fit_laws(points)["words"].exponent == pytest.approx(-0.1)


def test_weft_lab_scaling_predicts_and_resumes(tmp_path):
    data = tmp_path / "text.txt"
    rng = np.random.default_rng(0)
    words = np.array(["sun", "moon", "star", "sky", "rain", "wind"])
    data.write_text("".join(" ".join(rng.choice(words, 6)) + "\n" for _ in range(60)))
    out = tmp_path / "out"
    call = [
        "lab", "scaling", "--recipe", "rnn-lm", "--data", str(data), "--sizes", "2,3,5",
        "--predict", "7", "-o", str(out), "--set", "train.epochs=1", "--device", "cpu",
    ]  # fmt: skip
    first = CliRunner().invoke(app, call)
    assert first.exit_code == 0, first.output
    saved = json.loads((out / "scaling.json").read_text())
    assert [point["size"] for point in saved["points"]] == [2, 3, 5]
    assert saved["prediction"]["point"]["size"] == 7
    assert "predicted" in first.output
    stamp = (out / "runs" / "3-1" / "point.json").stat().st_mtime_ns
    assert CliRunner().invoke(app, call).exit_code == 0
    assert (out / "runs" / "3-1" / "point.json").stat().st_mtime_ns == stamp
    wrong = CliRunner().invoke(app, [*call[:3], "cnn", *call[4:]])
    assert "language models" in str(wrong.exception)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "needs two lines"), (b"one\n\n", "needs two lines"), (b"\xff\xfe\n", "not UTF-8")],
)
def test_scaling_names_a_file_without_text(tmp_path, content, message):
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"texts\.txt.*{message}"):
        measure_scaling("rnn-lm", str(path), tmp_path / "out", sizes=[4, 8, 16])
