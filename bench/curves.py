"""Draws what pre-training gives by the number of examples: docs/curves.svg, from the kept figures.

python bench/curves.py
"""

import statistics
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from summary import results
from tables_finetune import TITLES, grouped, metric, values

PAGE = Path(__file__).parents[1] / "docs" / "curves.svg"
NETWORK = "BERT-small"
LINES = (("pretrained", "pre-trained", "#2b6cb0"), ("scratch", "from scratch", "#c05621"))


def main() -> None:
    trials = [
        line for file in results() for line in file.lines
        if line.get("question") == "fine-tuning trial" and line["variant"] == NETWORK
    ]  # fmt: skip
    found = grouped(trials)
    names = [name for name in TITLES if any(key[0] == name for key in found)]
    # The same figures give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "weft", "svg.fonttype": "none", "font.size": 9})
    figure, panels = plt.subplots(1, len(names), figsize=(2.3 * len(names), 2.6), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        for start, label, colour in LINES:
            runs = {
                key[4]: rows for key, rows in found.items() if (key[0], key[3]) == (name, start)
            }
            rows = sorted(runs.values(), key=lambda rows: rows[0]["n"])
            panel.errorbar(
                [rows[0]["n"] for rows in rows], [statistics.mean(values(r)) for r in rows],
                [statistics.stdev(values(r)) if len(r) > 1 else 0.0 for r in rows],
                color=colour, label=label, marker="o", markersize=3.5, capsize=3, linewidth=1.4,
            )  # fmt: skip
        panel.set(xscale="log", title=TITLES[name], xlabel="examples")
        panel.set_ylabel(metric(rows[0][0]) + ", %")
        panel.set_xticks([100, 1000, 10000], ["100", "1,000", "10,000"])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    named = panels[0][0].get_legend_handles_labels()
    figure.legend(*named, frameon=False, loc="lower center", ncols=len(LINES))
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(PAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
