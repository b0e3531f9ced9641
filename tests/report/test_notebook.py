"""Values as HTML in notebooks: escaped, self-contained, and about the right things."""

from html.parser import HTMLParser

import numpy as np
import pytest

import weft
from tests.fixtures import small
from weft.compare.leaderboard import Leaderboard, Row
from weft.doctor.finding import Diagnosis, Finding, Histogram, Place, SentenceSketch
from weft.explain.attention import AttentionMaps
from weft.explain.beams import BeamNode
from weft.explain.explanation import Explanation, Explanations, WordWeight
from weft.explain.generation import GenerationTrace, TokenTrace
from weft.metrics import ClassificationMetric
from weft.predict.generate import Generation, Generations
from weft.report.notebook import render
from weft.report.pages.vectors import WordMap, WordPoint
from weft.tasks.annotation import Annotation
from weft.tasks.task import Answer, Answers
from weft.text.annotation.trees import Tree
from weft.vectors.store import ScoredWords

HOSTILE = "<script>alert('x')</script><img src=x onerror=y>\"&</div>"
TAGS = {"div", "style", "p", "b", "i", "span", "table", "thead", "tbody", "tr", "th", "td", "svg",
        "g", "path", "text", "title", "circle", "rect", "line", "mark", "small", "wbr", "ul", "li",
        "code", "bdi", "details", "summary"}  # fmt: skip


class Page(HTMLParser):
    """The elements, attributes and visible text of a piece of HTML; fails unless they nest."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.names, self.text = [], set(), set(), ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag != "wbr":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def classification():
    metric = ClassificationMetric(2)
    metric.add(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]))
    return metric


def tree(word=HOSTILE):
    return Tree(HOSTILE, "", (Tree("NP", "", (Tree("DT", "the"),)), Tree("VP", word)))


ANSWER = Answer(HOSTILE, 0.75, coverage=0.5)
WORDS = (WordWeight(0, 8, 0.9), WordWeight(9, 14, -0.4))
EXPLANATION = Explanation(HOSTILE, ANSWER, HOSTILE, "occlusion", WORDS)
PLACE = Place(HOSTILE, HOSTILE, HOSTILE, SentenceSketch(("a", HOSTILE), heads=(2, 0),
              relations=(HOSTILE, "root")))  # fmt: skip
FINDING = Finding("copies", "warning", HOSTILE, 9, (PLACE,) * 9, HOSTILE)
ROWS = [
    Row("tfidf", metric="accuracy", quality=0.93, low=0.9, high=0.95, values=(0.93,), p50_ms=0.4),
    Row(HOSTILE, error=HOSTILE),
]
SPANS = Annotation("spans", (HOSTILE,), text=HOSTILE, spans=((0, 8, HOSTILE),))
ARCS = Annotation("arcs", ("a", HOSTILE), heads=(2, 0), relations=(HOSTILE, "root"),
                  tags=(HOSTILE, "X"))  # fmt: skip
TOKENS = ("a", HOSTILE)
GENERATION = Generation(HOSTILE, HOSTILE, -0.5, (), ended=False)
TRACE = GenerationTrace(
    (TokenTrace(HOSTILE, 0.5, ((HOSTILE, 0.5),)),),
    TOKENS,
    np.array([[[[0.25, 0.75]]]]),
    (BeamNode(0, 0, HOSTILE, -0.7, -1, "ended", -0.7, True),),
)
VALUES = {
    "neighbours": ScoredWords([(HOSTILE, 0.5)]),
    "word map": WordMap("pca", (WordPoint(HOSTILE, 9, 9, 0, True, (9, 9), (1, 1)),), 0.75),
    "attention": AttentionMaps(HOSTILE, TOKENS, np.full((2, 3, 2, 2), 0.5)),
    "trace": TRACE,
    "generation": GENERATION,
    "generations": Generations([[GENERATION] * 2] * 15),
    "answer": ANSWER,
    "answers": Answers([ANSWER] * 30, [HOSTILE] * 30),
    "answers without inputs": Answers([ANSWER]),
    "pairs": Answers([ANSWER], [(HOSTILE, HOSTILE)]),
    "structures": Answers([Answer(None, 0.5, structure=ARCS)], [HOSTILE]),
    "blanks": Answer(HOSTILE, 0.5, blanks=(((HOSTILE, 0.5), ("b", 0.4)),)),
    "number": Answer(3.14159, 3.14159),
    "labels": Answer((HOSTILE, "b"), 0.5),
    "spans": SPANS,
    "arcs": ARCS,
    "tags": Annotation("tags", ("a", HOSTILE), tags=("X", HOSTILE)),
    "tree": tree(),
    "explanation": EXPLANATION,
    "explanations": Explanations([EXPLANATION] * 9),
    "leaderboard": Leaderboard(ROWS),
    "row": ROWS[0],
    "failed row": ROWS[1],
    "metric": classification(),
    "empty metric": ClassificationMetric(2),
    "finding": FINDING,
    "diagnosis": Diagnosis({"train": HOSTILE}, {"train": 9}, (FINDING,), {}, Histogram(), {}, {}),
    "clean diagnosis": Diagnosis({"train": "a"}, {"train": 9}, (), {}, Histogram(), {}, {}),
}


@pytest.mark.parametrize("name", VALUES)
def test_everything_is_escaped_and_self_contained(name):
    html = VALUES[name]._repr_html_()
    page = Page(html)
    assert page.tags <= TAGS, page.tags - TAGS
    assert not {one for one in page.names if one.startswith("on")} | (page.names & {"src", "href"})
    assert "http" not in html
    assert "@import" not in html
    assert "url(" not in html
    assert html.count('<div class="weft-output">') == 1
    assert 'data-jp-theme-light="false"' in html  # dark notebooks have their own colours


def test_a_run_and_its_model(tmp_path):
    file = small.file(tmp_path)
    result = weft.train("tfidf", tmp_path / "run", changes={"data.train": str(file)}, quiet=True)
    page = Page(result._repr_html_())
    assert "accuracy %" in page.text
    assert "Predictor(classify, tfidf" in page.text
    answers = result.predictor(["a <b>good</b> film", "bad"])
    text = Page(answers._repr_html_()).text
    assert "a <b>good</b> film" in text
    assert answers[0].value in text
    metric = weft.evaluate(result.predictor, weft.read(str(file)))
    assert repr(metric).startswith("ClassificationMetric(accuracy ")
    value = metric.compute()["accuracy"]
    assert f"{100 * value.low:.1f} to {100 * value.high:.1f}" in Page(metric._repr_html_()).text


def test_answers_are_a_list():
    answers = Answers([Answer(str(i), 0.5) for i in range(30)], [f"text {i}" for i in range(30)])
    assert answers == [Answer(str(i), 0.5) for i in range(30)]
    assert answers[3] == Answer("3", 0.5)
    assert answers[5:7].inputs == ["text 5", "text 6"]
    assert isinstance(answers[5:7], Answers)
    assert repr(answers[:1]) == "[Answer('0', score=0.5)]"
    assert repr(answers).endswith("Answer('19', score=0.5), … 10 more]")
    page = Page(answers._repr_html_()).text
    assert "text 19" in page
    assert "text 20" not in page
    assert "… 10 more answers" in page


def test_the_table_of_a_comparison():
    page = VALUES["leaderboard"]._repr_html_()
    assert "tfidf is the only trained model" in page
    assert page.count('<tr class="choice">') == 1
    assert "93.0" in page
    assert '<span class="bad">failed</span>' in page


def test_reprs_stay_short():
    for name, value in VALUES.items():
        if not isinstance(value, list):
            assert len(repr(value)) < 400, name
    assert repr(VALUES["clean diagnosis"]) == "Diagnosis(train 9 rows: no problems found)"
    assert repr(ClassificationMetric(2)) == "ClassificationMetric(nothing counted; n=0)"
    assert repr(EXPLANATION) == f"Explanation({HOSTILE} by occlusion: <script> +0.9, lert( -0.4)"


def test_neighbours_are_a_list_and_a_table():
    vectors = weft.Vectors(["a", "<b>", "c"], np.eye(3, 5, dtype=np.float32) + 0.1)
    found = vectors.neighbours("a", k=2)
    assert [type(value) for value in (found, vectors.analogy("a", "<b>", "c"))] == [ScoredWords] * 2
    assert {word for word, _ in found} == {"<b>", "c"}
    assert f"<b>{found[0][1]:.3f}" in Page(found._repr_html_()).text.replace("\n", "")
    expanded = vectors.expand(["a"], k=1)
    assert expanded[0] == ("a", 1.0)
    assert "1.000" in Page(expanded._repr_html_()).text


def test_attention_maps_name_the_largest_weight():
    weights = np.array([[[[0.1, 0.9], [0.5, 0.5]], [[0.2, 0.8], [0.6, 0.4]]]])
    page = AttentionMaps("bert", ("the", "film"), weights)._repr_html_()
    assert page.count("<svg") == 3  # two heads and their mean
    assert "bert, layer 1, mean over heads: “the” attends to “film” with 0.85" in Page(page).text


def test_generations_are_cut_and_counted():
    page = Page(VALUES["generations"]._repr_html_()).text
    assert "… 10 more texts" in page
    assert "20 of the texts reached max_length" in page


def test_a_search_is_a_table_of_trials(tmp_path):
    pytest.importorskip("optuna")
    file = small.file(tmp_path)
    found = weft.tune(
        "tfidf", tmp_path / "tuned", train=str(file), search={"classic.C": [0.1, 1.0]}, seeds=0,
        trials=2,
    )  # fmt: skip
    page = found._repr_html_()
    assert Page(page).tags <= TAGS
    assert page.count('<tr class="choice">') == 1
    assert "classic.C" in page


def test_values_without_a_drawing_are_refused():
    with pytest.raises(TypeError, match="no rendering for int"):
        render(3)
