"""Do explanations find the word that decides? One JSON line a recipe and method.

    python bench/explain.py --recipes bag,cnn,bilstm-attention,transformer --record explain

Each recipe is trained on texts in which one planted word decides the label, then explains texts it
has not seen; "bag/attention" is the recipe bag with the pool attention. `top1` and `top3`: of the
correct predictions, the share whose decisive word has the largest or one of the three largest
weights. `aopc`, beside words in random order, is the mean fall of the answer's probability as words
are removed (explain/faithfulness.py). `gap` is how far the weights of integrated gradients miss
what they should sum to, as a share of it.
"""

import shutil
import tempfile
import time

import numpy as np
from record import Record, options

import weft
from weft.explain import Explanation, explain, faithfulness, methods
from weft.explain.explanation import make_target
from weft.run import Splits
from weft.text.example import Example
from weft.text.synthetic.corpora import generate_planted


def trained(recipe: str, epochs: int, rows: int) -> tuple[weft.Predictor, float]:
    """A predictor for planted texts, and the seconds its training took."""
    name, _, pool = recipe.partition("/")
    changes = {"train.epochs": epochs, "train.threads": 1, "train.seed": 1}
    changes |= {"pool.kind": pool} if pool else {}
    neural = "classic" not in weft.recipe(name)
    config = weft.recipe(name).with_values(changes if neural else {}, "bench")
    train, dev = generate_planted(rows, seed=1), generate_planted(200, seed=2)
    folder = tempfile.mkdtemp(prefix="weft-explain-")
    try:
        begin = time.perf_counter()
        parts = Splits(lambda: iter(train), lambda: iter(dev), None)
        out = weft.train(config, folder, splits=parts, quiet=True, overwrite=True)
        return out.predictor, time.perf_counter() - begin
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def found(explanation: Explanation, example: Example, first: int) -> bool:
    """Whether the planted word is among the `first` words that speak most for the answer."""
    start, end = map(int, example.id.split(":"))
    best = sorted(explanation.words, key=lambda word: -word.weight)[:first]
    return any((word.start, word.end) == (start, end) for word in best)


def gap(predictor: weft.Predictor, explanations: list[Explanation]) -> float:
    """The mean distance between what the weights sum to and f(x) − f(unknown), as a share of it."""
    import torch

    from weft.explain.gradients import mask_with_unknown

    texts = [e.text for e in explanations]
    directions = np.stack(
        [make_target(predictor, e.target, e.answer).direction for e in explanations]
    )
    reached, should = np.array([sum(w.weight for w in e.words) for e in explanations]), []
    where = []
    with torch.no_grad():
        for rows, source in predictor.engine.batches(texts):
            ends = [predictor.engine.model(given) for given in (source, mask_with_unknown(source))]
            wanted = torch.from_numpy(directions[[row.text for row in rows]]).to(ends[0])
            should += ((ends[0] - ends[1]) * wanted).sum(1).tolist()
            where += [row.text for row in rows]
    aim = np.array(should)[np.argsort(where)]
    return float(np.abs(reached - aim).sum() / np.abs(aim).sum())


def main() -> None:
    parser = options(__doc__, repeats=1)
    every = "tfidf,bag,bag/attention,fasttext,cnn,bilstm,bilstm-attention,transformer"
    parser.add_argument("--recipes", default=every)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rows", type=int, default=2000, help="training texts")
    parser.add_argument("--texts", type=int, default=400, help="test texts")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    record = Record(arguments.record)
    test = generate_planted(arguments.texts, seed=3)
    for recipe in arguments.recipes.split(","):
        predictor, seconds = trained(recipe, arguments.epochs, arguments.rows)
        texts = [example.text for example in test]
        right = [a.value == e.label for a, e in zip(predictor(texts), test, strict=True)]
        record.line(
            "planted training", recipe=recipe, accuracy=np.mean(right), seconds=round(seconds, 1)
        )
        correct = [example for example, yes in zip(test, right, strict=True) if yes]
        known: dict = {}
        for method in methods(predictor):
            begin = time.perf_counter()
            some = explain(
                predictor, [e.text for e in correct], method=method, steps=arguments.steps
            )
            spent = time.perf_counter() - begin
            pairs = list(zip(some, correct, strict=True))
            faith = faithfulness(predictor, some, known=known)
            more = {"gap": gap(predictor, some)} if method == "integrated-gradients" else {}
            record.line(
                "planted words",
                recipe=recipe,
                method=method,
                n=len(pairs),
                top1=np.mean([found(e, x, 1) for e, x in pairs]),
                top3=np.mean([found(e, x, 3) for e, x in pairs]),
                aopc=faith.aopc.to_json(),
                random=faith.random.to_json(),
                gain=faith.gain.to_json(),
                milliseconds=round(1000 * spent / len(pairs), 2),
                **more,
            )


if __name__ == "__main__":
    main()
