"""`weft suite`: tasks on disk, systems, trials, table and page."""

import json

import pytest

from tests.fixtures.command import fails, ok
from tests.fixtures.small import SMALL, file
from weft.compare.suite import build_systems, read_suite
from weft.errors import UserError
from weft.report.suite import suite

QUICK = {**SMALL, "train.epochs": 1}


@pytest.fixture
def folder(tmp_path):
    """Two tasks: one in a sub-folder of the suite, both with a test file."""
    for name in ("first", "second"):
        (tmp_path / "suite" / name).mkdir(parents=True)
        for split, count in (("train", 46), ("test", 24)):
            file(tmp_path / "suite" / name, f"{split}.tsv", count)
    return tmp_path / "suite"


def test_tasks_are_the_folders_with_a_train_file(folder):
    (folder / "notes").mkdir()
    assert [task.name for task in read_suite(folder)] == ["first", "second"]


def test_list_names_files_metrics_and_settings(folder):
    (folder / "suite.toml").write_text(
        '[[task]]\nname = "one"\ntrain = "first/train.tsv"\nmetrics = ["macro_f1"]\n'
        'set = { "data.dev_fraction" = 0.2 }\n'
    )
    (task,) = read_suite(folder)
    assert task.train == str(folder / "first/train.tsv")
    assert (task.metrics, dict(task.settings)) == (("macro_f1",), {"data.dev_fraction": 0.2})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = 3", r"only \[\[task\]\] tables belong here"),
        ("[[task]]\nname = 3\n", "name, train, dev and test are texts"),
        ('[[task]]\nname = "a"\n', "needs a name without '/' and a train file"),
        ('[[task]]\nname = "../a"\ntrain = "x"\n', "needs a name without '/'"),
        ('[[task]]\nname = "a"\ntrian = "x"\n', "Unknown key 'trian'.*train"),
        ('[[task]]\nname="a"\ntrain="x"\n[[task]]\nname="a"\ntrain="y"\n', "two tasks are called"),
        ("[[task", "not TOML"),
        ('[[task]]\nname="a"\ntrain="x"\nset=3\n', "set is a table"),
    ],
)
def test_bad_list_raises_user_error(folder, text, message):
    (folder / "suite.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_suite(folder)


def test_folder_with_two_train_files_is_an_error(folder):
    file(folder / "first", "train.csv")
    with pytest.raises(UserError, match=r"2 files for train: train\.csv, train\.tsv\. Keep one"):
        read_suite(folder)


def test_systems_need_recipes_or_a_checkpoint():
    with pytest.raises(UserError, match="Name the recipes with --recipes"):
        build_systems((), (), "")
    with pytest.raises(UserError, match="Unknown recipe 'bagg'"):
        build_systems(("bagg",), (), "")


def test_suite_trains_every_task_with_every_seed_and_averages(folder, tmp_path):
    options = {"recipes": ["bag"], "baseline": ["tfidf"], "seeds": 2, "changes": QUICK}
    page = suite(folder, tmp_path / "out", quiet=True, **options)
    saved = json.loads((tmp_path / "out/suite.json").read_text("utf-8"))
    baseline, system = saved["systems"]
    assert [len(row["values"]) for row in baseline["tasks"]] == [1, 1]  # no seeds to vary
    assert [len(row["values"]) for row in system["tasks"]] == [2, 2]
    means = [sum(row["values"]) / 2 for row in system["tasks"]]
    assert system["average"] == pytest.approx(sum(means) / 2)
    result = tmp_path / "out/trials/first/recipes/bag-1/result.json"
    accuracy = json.loads(result.read_text("utf-8"))["figures"]["accuracy"]["value"]
    assert page.scores["recipes"][0].values[0] == pytest.approx(100 * accuracy)
    html = (tmp_path / "out/report.html").read_text("utf-8")
    assert "error reduction" in html
    assert "<svg" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    before = result.stat().st_mtime_ns
    suite(folder, tmp_path / "out", quiet=True, **options)
    assert result.stat().st_mtime_ns == before  # finished runs are not repeated


def test_rows_of_two_texts_are_a_pair_task(folder, tmp_path):
    rows = "".join(f"good film {i}\tgood plot {i}\t{'yes' if i % 2 else 'no'}\n" for i in range(40))
    for split in ("train", "test"):
        table = folder / "first" / f"{split}.tsv"
        table.write_text(f"sentence1\tsentence2\tlabel\n{rows}", "utf-8")
    page = suite(
        folder,
        tmp_path / "out",
        recipes=["tfidf", "tfidf-pair"],
        seeds=1,
        changes=QUICK,
        quiet=True,
    )
    chosen = {score.task: score.recipe for score in page.scores["recipes"]}
    assert chosen == {"first": "tfidf-pair", "second": "tfidf"}


def test_task_without_a_fitting_recipe_is_named(folder, tmp_path):
    message = fails("suite", folder, "-o", tmp_path / "out", "--recipes", "tagger-window")
    assert "first: no recipe of 'recipes' fits the task 'classify'" in message


def test_table_on_the_command_line(folder, tmp_path):
    sets = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    out = ok("suite", folder, "-o", tmp_path / "out", "--recipes", "tfidf", "--seeds", 1, *sets).out
    assert out.splitlines()[0].split() == ["task", "metric", "recipes"]
    assert out.splitlines()[-2].startswith("average")
    assert out.splitlines()[-1].endswith("report.html")


def test_missing_folder_is_one_line(tmp_path):
    assert "is not a folder" in fails("suite", tmp_path / "none", "--recipes", "bag")
