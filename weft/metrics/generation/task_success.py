"""Success of task-oriented dialogues: entity match rate and task success (Wen et al. 2017)."""

from collections.abc import Mapping, Sequence

from weft.errors import UserError
from weft.metrics.per_sentence import SentenceMetric, mean_of_column
from weft.metrics.sentence_counts import Statistic
from weft.text.formats.dialogue.entities import ANY_VALUE, Entity, EntityDatabase
from weft.text.formats.dialogue.turns import SYSTEM, Dialogue
from weft.text.formats.dialogue.views import last_state
from weft.text.formats.records import mark_slot


class TaskSuccess(SentenceMetric):
    """Match: the entity offered last fits the goal. Success: all requests are answered, too.

    As in the authors' code: the first entity that fits the state is offered where a response has
    its name, and kept while it fits; unfinished dialogues fail; requests for `informable` slots,
    which states have, do not count.
    """

    def __init__(
        self, database: EntityDatabase, informable: Sequence[str] = (), name: str = "name"
    ) -> None:
        super().__init__(2, tuple(informable), name)
        if name not in database.slots:
            raise UserError(
                f"No entity has the slot '{name}'. Known: {', '.join(database.slots)}. Pass "
                "name=…, the slot by which entities are offered."
            )
        self.database, self.informable, self.name = database, informable, name

    def add(self, predicted: Sequence[Sequence[str]], gold: Sequence[Dialogue]) -> None:
        """Count dialogues with their delexicalised responses, one for each turn of the system.

        The states of a dialogue should be those that the model predicted.
        """
        for responses, dialogue in zip(predicted, gold, strict=True):
            offered, named = self._offer(dialogue, responses)
            match = dialogue.finished and offered is not None and self._fits(offered, dialogue)
            requested = {*dialogue.requests} & {*self.database.slots} - {*self.informable}
            self.add_row([match, match and requested <= named])

    def statistics(self) -> Mapping[str, Statistic]:
        return {"entity_match": mean_of_column(0), "task_success": mean_of_column(1)}

    def _offer(
        self, dialogue: Dialogue, responses: Sequence[str]
    ) -> tuple[Entity | None, set[str]]:
        """Return the entity that was offered last, and the slots whose values were named."""
        places = [i for i, turn in enumerate(dialogue.turns) if turn.speaker == SYSTEM]
        selected: Entity | None = None
        offered: Entity | None = None
        named: set[str] = set()
        for i, response in zip(places, responses, strict=True):
            matches = self.database.find(dict(last_state(dialogue.turns[:i])))
            if selected not in matches:
                selected = matches[0] if matches else None
            if mark_slot(self.name) in response and selected is not None:
                offered = selected
            named |= {slot for slot in self.database.slots if mark_slot(slot) in response}
        return offered, named

    def _fits(self, entity: Entity, dialogue: Dialogue) -> bool:
        wanted = [(slot, value) for slot, value in dialogue.constraints if value != ANY_VALUE]
        return all(entity.get(slot) == value for slot, value in wanted)
