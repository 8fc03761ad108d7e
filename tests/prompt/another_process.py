"""What a process that starts later makes of a conversation: run as a module, JSON in and out.

A line of input holds messages, turns and an hour; a line of output the next prompt's ids, how many
turns were taken, and their texts when exported again.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from cachefriendly import ChatRequest, Engine
from cachefriendly.state import message_from_dict
from cachefriendly.testing import byte_tokenizer, templates, tiny_model

SPELLED = [ord("Y"), ord("e"), ord("s")]


def merged_tokenizer(template: str = templates.CHATML) -> Any:
    """A vocabulary with the merge ``Y e``: ids of single letters are then never tokenized."""
    state = json.loads(byte_tokenizer().backend_tokenizer.to_str())
    state["model"]["vocab"]["Ye"] = 1000
    state["model"]["merges"] = [["Y", "e"]]
    core = Tokenizer.from_str(json.dumps(state))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


def dated_engine(now: datetime) -> Engine:
    """An engine whose template prints the time, which is ``now``."""
    engine = Engine(tiny_model(vocab_size=1001), merged_tokenizer(templates.DATE_NEAR_START))
    engine.load()._live().prompts._now = lambda: now
    return engine


def main() -> None:
    given = json.loads(sys.stdin.read())
    messages = tuple(map(message_from_dict, given["messages"]))
    with dated_engine(datetime.fromisoformat(given["now"])) as engine:
        taken = engine.import_turns(given["turns"])
        ids = engine.prompt_ids(ChatRequest(messages))
        again = [engine.export_turn(message.handle or "") for message in messages]
    sys.stdout.write(
        json.dumps({"taken": taken, "ids": ids, "again": [text for text in again if text]})
    )


if __name__ == "__main__":
    main()
