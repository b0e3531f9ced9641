"""Rules for the slot values of restaurants in E2E NLG texts.

The phrases were tried on training texts and on references of the test part, never on a model's
answers; they are matched in lower case without accents. `name` and `near` are open slots:
`RULES.with_names(records)` makes their values known.
"""

from weft.metrics.generation.slots import SlotRules

_KIDS = r"(?:famil(?:y|ies)|child(?:ren)?|child'?s|kids?)"
_NOT = r"(?:not|non|no|never|\w+n't|without|nor|avoid)"
_MONEY = r"(?:£|\$|gbp ?|euros? ?|pounds? ?)? ?"
_PRICE = r"pric(?:es?|ed|ing)(?: range)?|costs?|prices"
_RATED = r"(?:rat(?:ing|ings|ed|e)|reviews?|reviewed|feedback|satisfaction|scores?|recommended)"
_FIVE = r"[ -]?(?:out of|of|/|from)[ -]?(?:5|five)(?: stars?)?|[ -](?:stars?)"


def _near(word: str, other: str, gap: int = 2) -> str:
    """One phrase close to the other, either way round, in the same clause."""
    between = rf"(?:[ ,-]+(?!(?:{_RATED}|{_PRICE}|and|but|with)\b)[\w'-]+){{0,{gap}}}[ ,-]+"
    return rf"(?:{word}){between}(?:{other})|(?:{other}){between}(?:{word})"


_EAT = {
    "coffee shop": [r"coffee[ -]?(?:shop|house|place|bar)s?", "cafes?", "coffee"],
    "pub": ["pubs?"],
    "restaurant": ["restaurants?"],
}
_FOOD = {
    "Chinese": ["chinese"],
    "English": ["english", "british"],
    "Fast food": [r"fast[ -]?foods?"],
    "French": ["french"],
    "Indian": ["indian"],
    "Italian": ["italian"],
    "Japanese": ["japanese", "sushi"],
}
_AREA = {
    "city centre": [
        r"(?:city|town)(?:'s)?[ -]?cent(?:re|er|ral)", r"cent(?:re|er) of (?:the )?(?:city|town)",
        r"cent(?:re|er) city", r"in (?:the )?(?:city|cent(?:re|er))", "central(?:ly)?",
        r"(?:down|mid)town",
    ],
    "riverside": [r"river[ -]?(?:sides?|banks?|front)", "river"],
}  # fmt: skip
_PRICES = {
    "less than £20": [
        rf"(?:less than|under|below|lower than|cheaper than|up to|within|max\w*) {_MONEY}"
        r"(?:20|twenty)", rf"{_MONEY}20 (?:or|and) (?:less|under|below)",
    ],
    "£20-25": [
        rf"{_MONEY}(?:20|twenty)(?: ?[-–] ?| to | and ){_MONEY}(?:25|twenty[ -]five)",
    ],
    "more than £30": [
        r"(?:more than|over|above|higher than|greater than|upwards? of|at least|from|exceed\w*|"
        rf"start\w* (?:at|from)) (?:a )?{_MONEY}(?:30|thirty)",
        rf"{_MONEY}30 ?(?:\+|plus|(?:or|and) (?:more|up|above|over|higher))",
    ],
    "cheap": [
        "cheap(?:er|ly)?", "inexpensive", r"low[ -](?:cost|priced?)", "affordabl[ey]", "budget",
        _near("low(?:er)?", _PRICE),
    ],
    "moderate": [
        _near("moderate(?:ly)?|average|medium|mid(?:dle)?|reasonabl[ey]|fair(?:ly)?", _PRICE),
        r"mid[ -]?(?:range|priced?)", "reasonabl[ey]",
        rf"moderate(?:ly)?(?!(?: \w+){{0,1}} {_RATED})",
    ],
    "high": [
        r"(?<!in)expensive", "pricey", r"high(?:er|ly)?[ -](?:priced?|end|cost)", "costly",
        "upscale", _near("high(?:er)?|upper", _PRICE),
    ],
}  # fmt: skip
_RATINGS = {
    "1 out of 5": [rf"(?:1|one)(?:{_FIVE})", _near(r"1(?!\d)|one", _RATED, 1)],
    "3 out of 5": [rf"(?:3|three)(?:{_FIVE})", _near(r"3(?!\d)|three", _RATED, 1)],
    "5 out of 5": [rf"(?:5|five)(?:{_FIVE})", _near(r"5(?!\d)|five", _RATED, 1)],
    "low": [_near("low(?:er|ly|est)?|poor(?:ly)?|bad(?:ly)?|not well|terrible", _RATED)],
    "average": [_near("average(?:ly)?|mediocre|decent(?:ly)?|moderate(?:ly)?|okay", _RATED)],
    "high": [_near("high(?:ly|er|est)?|excellent|great|good|well|top|superb", _RATED)],
}
_FAMILY = {
    "no": [
        rf"{_NOT}(?! (?:far|only)\b)(?:[ -]+[\w'-]+){{0,5}}?[ -]+{_KIDS}"
        rf"(?: (?:with|and|or|of)(?: \w+)? {_KIDS})?(?:[ -]*\w*friendly)?",
        rf"{_KIDS}[ -]+(?:un|non[ -]?)friendly", rf"(?:un|non)[ -]?{_KIDS}",
        rf"{_KIDS}(?:[ -]\w+){{0,2}} (?:\w+n't|not|discouraged|prohibited|banned|unwelcome)",
        rf"{_KIDS}[ -]free", r"adults?[ -]+(?:only|orient\w+|establishment|venue|place|atmosphere)",
        r"(?:only|just|exclusively) (?:for )?(?:the )?adults?", "for adults(?! and)",
    ],
    "yes": [
        rf"{_KIDS}(?:[ -]+\w+)?[ -]+(?:friendly|orient\w+|welcom\w+|suitable|fun|allowed)",
        rf"(?:friendly|welcom\w+|suitable|good|great|perfect|ideal|for|bring|accommodat\w+|cater\w*|"
        rf"accept\w*|allow\w*|serv\w+|take)(?: [\w']+){{0,3}} {_KIDS}", _KIDS, "all ages?",
    ],
}  # fmt: skip

RULES = SlotRules(
    phrases={
        "eatType": _EAT,
        "food": _FOOD,
        "area": _AREA,
        "priceRange": _PRICES,
        "customer rating": _RATINGS,
        "familyFriendly": _FAMILY,
    },
    alike={
        "priceRange": (
            frozenset({"cheap", "less than £20"}),
            frozenset({"moderate", "£20-25"}),
            frozenset({"high", "more than £30"}),
        ),
        "customer rating": (
            frozenset({"low", "1 out of 5"}),
            frozenset({"average", "3 out of 5"}),
            frozenset({"high", "5 out of 5"}),
        ),
    },
    harmless={"eatType": frozenset({"restaurant"})},  # what every record is about
)
