"""Anchors against a naive history that keeps its blocks in the text of its user messages."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.anchors import AnchoredPrompt
from cachefriendly.messages import Message
from cachefriendly.prompt import PromptBuilder
from cachefriendly.prompt.bindings import block_text
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer

PROMPT = AnchoredPrompt.from_template("For [WHO_3] at [TIME_3].")
TOKENIZER = byte_tokenizer()

values = st.fixed_dictionaries({"who": st.sampled_from("ab"), "time": st.sampled_from("123")})
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), values, st.sampled_from(["Hi", "Why?"])),
        st.tuples(st.just("retry"), values, st.sampled_from(["Yes", "No"])),
        st.tuples(st.just("branch"), values, st.integers(0, 3)),
        st.tuples(st.just("restart"), values, st.booleans()),
    ),
    min_size=1,
    max_size=8,
)


class Both:
    """One conversation twice: with anchors, and written out by hand."""

    def __init__(self):
        self.anchored, self.plain = PromptBuilder(TOKENIZER), PromptBuilder(TOKENIZER)
        self.session = "s"
        self.history: list[Message] = []
        self.blocks: list[dict[str, str]] = []  # by user message
        self.texts: dict[str, str] = {}  # of turns, by handle
        self.told: dict[tuple, dict[str, str]] = {}  # by what was said up to a user message

    def place(self):
        """The conversation up to the newest user message, as the model saw it."""
        said = [(m.role, m.content) for m in self.history]
        return tuple(said), tuple(block_text(block) for block in self.blocks)

    def call(self, given, reply):
        """The newest message is the user's: bind, build both, record both."""
        now = PROMPT.bind(**given)
        said = {name: value for block in self.blocks for name, value in block.items()}
        fresh = {name: value for name, value in now.items() if said.get(name) != value}
        place = self.place()
        block = self.told.get(place, fresh) if said else fresh
        self.told[place] = block
        self.blocks.append(block)
        built = self.anchored.build(
            ChatRequest((PROMPT.message(**given), *self.history), session=self.session)
        )
        naive = self.plain.build(ChatRequest((Message("system", PROMPT.text), *self.naive())))
        assert built.ids == naive.ids
        assert built.losses == naive.losses
        output = self.anchored.encode_text(reply)
        message = Message("assistant", reply)
        handle = self.anchored.commit(built, output, message)
        assert handle == self.plain.commit(naive, output, message)
        self.texts[handle] = self.anchored.turns.export(handle, "") or ""
        self.history.append(replace(message, handle=handle))

    def naive(self):
        blocks = iter(self.blocks)
        for message in self.history:
            if message.role == "user":
                yield replace(message, content=block_text(next(blocks)) + message.content)
            else:
                yield message

    def back_to(self, turn):
        """Right behind the user message of that turn."""
        del self.history[2 * turn + 1 :]
        del self.blocks[turn:]

    def restart(self, session):
        """Another process: it has the turns and nothing else."""
        self.anchored, self.told = PromptBuilder(TOKENIZER), {}
        self.session = session
        assert self.anchored.turns.take(self.texts.values(), "", 1000) == len(self.texts)


@given(steps)
def test_ids_are_those_of_a_history_that_was_written_out(trace):
    both = Both()
    for kind, given_values, what in trace:
        turns = len(both.blocks)
        if kind == "restart":
            both.restart("s" if what else "another")
        elif kind == "say" or not turns:
            both.history.append(Message("user", str(what)))
            both.call(given_values, "Yes")
        elif kind == "retry":
            both.back_to(turns - 1)
            both.call(given_values, what)
        else:
            both.back_to(min(what, turns - 1))
            both.call(given_values, "Perhaps")
