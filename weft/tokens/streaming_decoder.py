"""The text of tokens as they come, one by one: nothing is said before its characters are whole."""

from collections.abc import Iterable, Mapping

from weft.tokens.tokenizer import NOBODY, Tokenizer

BROKEN = "\ufffd"  # what stands for bytes that make no character, or not yet


class Spelling:
    """Gives the text that each new token adds to those before it.

    Some tokens end inside a character, and a space may belong to the token after it: only what
    later tokens cannot change is given, and what was given is the whole text when put together.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        before: Iterable[int] = (),
        spaced: bool = False,
        strangers: Mapping[int, str] = NOBODY,
    ) -> None:
        self.tokenizer, self.strangers = tokenizer, strangers
        self.spaced = spaced  # what stands before needs no space, though its tokens may have none
        self.ids = list(before)  # from the last token that began a piece of text
        self.said = len(self.ids)  # of these, how many have been given

    def add(self, id: int) -> str:
        """The text that is whole with one more token; "" while a character is not."""
        if id >= len(self.tokenizer) and id not in self.strangers:
            return ""  # a mark that the tokenizer does not have
        self.ids.append(id)
        return self._fresh(last=False)

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        return self._fresh(last=True)

    def _fresh(self, last: bool) -> str:
        # A few tokens before are spelled too: what joins a token to the last one depends on it.
        before = self.tokenizer.decode(self.ids[: self.said], self.strangers)
        text = self.tokenizer.decode(self.ids, self.strangers)
        if not last and (text.endswith(BROKEN) or len(text) <= len(before)):
            return ""
        self.ids = self.ids[self.said :] if self.said < len(self.ids) else self.ids
        self.said = len(self.ids)
        fresh = text[len(before) :]
        if fresh and self.spaced:
            self.spaced = False
            return fresh if before[-1:].isspace() else fresh.lstrip(" ")
        return fresh
