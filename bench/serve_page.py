"""Drive the page of `weft serve` in Chromium: five tasks, streaming, side by side, errors.

    python bench/serve_page.py URL -o SHOTS

The server at URL has models called reviews and words (classifiers of reviews; reviews has vectors,
such as fasttext, and words has none, such as tfidf), tags, tree, question (answer spans) and lm (a
language model). Every step is checked; pictures are for people to look at.
"""

import argparse
import json
import time
from pathlib import Path

from chromium import Chromium


def wait(page: Chromium, code: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not page.run(code):
        assert time.monotonic() < end, (code, page.run("document.body.innerText"))
        time.sleep(0.05)


def ask(page: Chromium, models: list[str], mode: str, **values: str) -> str:
    """Fill in the form, run it by the keyboard, and return the text of the cards."""
    page.run(
        "(() => {for (const box of document.querySelectorAll('[name=model]'))"
        f" box.checked = {json.dumps(models)}.includes(box.value);"
        f" document.getElementById('mode-{mode}').checked = true;"
        f" for (const [id, value] of Object.entries({json.dumps(values)}))"
        " document.getElementById(id).value = value; adapt(); return true})()"
    )
    page.run("document.getElementById('text').focus()")
    page.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', ctrlKey: true}))")
    time.sleep(0.1)
    wait(page, "!document.getElementById('run').disabled")
    return page.run("document.getElementById('cards').innerText")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    shots: Path = arguments.o
    shots.mkdir(parents=True, exist_ok=True)
    with Chromium() as page:
        page.call("Page.navigate", url=arguments.url)
        wait(page, "document.querySelectorAll('[name=model]').length >= 6")
        text = ask(page, ["reviews", "words"], "answer", text="a fine film with a dull plot")
        assert text.count("positive") == 2
        assert page.run("document.querySelectorAll('.card').length") == 2
        for width, name in ((1100, "desktop"), (390, "phone")):
            for dark in (False, True):
                page.screenshot(
                    shots / f"side-{name}-{'dark' if dark else 'light'}.png", width, dark
                )
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), "wider than a phone"
        for model, values, drawn in (
            ("tags", {"text": "Bo Lee lives in Rome ."}, "Rome"),
            ("tree", {"text": "The dog sees the bee ."}, "<svg"),
            ("question", {"text": "what sees the dog ?",
                          "other": "the dog sees a cat near the river ."}, "river"),
        ):  # fmt: skip
            ask(page, [model], "answer", **values)
            inner = page.run("document.querySelector('.drawing').shadowRoot.innerHTML")
            assert drawn in inner, (model, inner[:300])
            page.screenshot(shots / f"{model}.png", 1100)
        ask(page, ["reviews"], "explain", text="a fine film with a dull plot")
        assert "fine" in page.run("document.querySelector('.drawing').shadowRoot.textContent")
        page.screenshot(shots / "explain-dark.png", 1100, dark=True)
        text = ask(page, ["lm"], "generate", text="the cat sees", length="30")
        assert "per second" in text, text
        page.screenshot(shots / "generate-phone.png", 390)
        text = ask(page, ["reviews"], "search", text="a fine film",
                   list="dull and long\nfine acting in a good film\n\na good plot")  # fmt: skip
        assert text.count("\n") >= 3
        page.screenshot(shots / "search.png", 1100)
        # Errors: an empty list, a model that cannot, and a server that refuses.
        ask(page, ["reviews"], "search", list="")
        assert "one per line" in page.run("document.getElementById('problem').textContent")
        ask(page, ["lm"], "search", list="a")
        problem = page.run("document.getElementById('problem').textContent")
        assert problem == "Choose a model that can search: reviews.", problem
        assert page.run("document.getElementById('cards').children.length") == 0  # none of before
        text = ask(page, ["lm"], "generate", text="the cat", length="100000")
        assert "--max-new-tokens" in text, text
        page.screenshot(shots / "error.png", 390, dark=True)
        assert page.run("document.querySelectorAll('#history button').length") >= 6
        page.run("document.querySelectorAll('#history button')[0].click()")
        wait(page, "!document.getElementById('run').disabled")
        for name in ("curl", "python"):
            page.run(f"document.getElementById('{name}').click()")
        unlabelled = page.run(
            "[...document.querySelectorAll('input, textarea')].filter(one => !one.labels.length"
            " && !one.getAttribute('aria-label')).length"
        )
        assert unlabelled == 0
        outside = [url for url in page.requests if not url.startswith(arguments.url)]
        assert not outside, outside
        errors = [one for one in page.errors if "422" not in one]
        assert not errors, errors
    print("the page works; pictures are in", shots)


if __name__ == "__main__":
    main()
