"""How the figures of dialogues become tables: states, responses from a database, ranking."""

from tables import Figures, Row, Section, Table, verdict

JOINT_GOAL_BAR, RECALL_BAR = 90, 45  # percent


def spread(found: Figures) -> str:
    """Mean and standard deviation, or a dash."""
    if found["mean"] is None:
        return "–"
    return f"{found['mean']:.2f}" + (f" ± {found['sd']:.2f}" if "sd" in found else "")


def tracked(line: Figures) -> Row:
    joint = line["joint_goal_accuracy"]
    return (
        f"`{line['recipe']}`",
        spread(joint),
        verdict(joint["mean"], JOINT_GOAL_BAR),
        spread(line["slot_f1"]),
        str(joint["n"]),
        str(line["seeds"]),
    )


def answered(line: Figures) -> Row:
    match = line["entity_match"]
    return (
        line["system"],
        spread(match),
        spread(line["task_success"]),
        spread(line["bleu"]),
        str(match.get("n", 136)),
        str(line["seeds"]),
    )


def ranked(line: Figures) -> Row:
    low, high = (100 * line[key] for key in ("low", "high"))
    return (
        line["model"],
        str(line["turns"]),
        f"{100 * line['recall_at_1']:.1f} [{low:.1f}, {high:.1f}]",
        verdict(round(100 * line["recall_at_1"], 1), RECALL_BAR),
        f"{line['n']:,}",
    )


SECTIONS = (
    Section(
        "Dialogue",
        "CamRest676, 3:1:1 in order, mean over seeds. A turn of the user counts if food, price "
        "range and area are all right, with states updated from the state that the model predicted "
        "before. Responses are delexicalised by the database; BLEU is of delexicalised responses, "
        "lower-cased, 13a tokens. Entity match and task success are defined as by Wen et al. "
        "(2017): the entity offered last fits the goal, and all that was requested is answered, "
        "too; unfinished dialogues fail. The systems below were delexicalised by their authors' "
        "dictionary, which also hides slot names, so their BLEU is comparable only roughly. "
        "Ranking: the response against nine of other dialogues of DailyDialog. Percent.",
        (
            Table(
                "dialogue, states",
                ("recipe", "joint goal accuracy", "bar", "slot F1", "turns", "seeds"),
                tracked,
            ),
            Table(
                "dialogue, responses",
                ("system", "entity match", "task success", "BLEU", "dialogues", "seeds"),
                answered,
            ),
            Table(
                "dialogue, ranking",
                ("model", "turns read", "recall@1 of 10", "bar", "n"),
                ranked,
            ),
        ),
    ),
)
