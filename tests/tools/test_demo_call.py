"""The demo model, greedy, held to a grammar by a plain loop over transformers' forward."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers import DynamicCache

from cachefriendly.compat_transformers import cache_argument
from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.hermes import HermesDialect
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary, json_grammar

MAGIC = Tool(
    "magic_function",
    "Applies a magic function to an input.",
    {"type": "object", "properties": {"input": {"type": "integer"}}, "required": ["input"]},
)


def greedy(model: Any, ids: list[int], matcher: GrammarMatcher) -> list[int]:
    cache = {cache_argument(model): DynamicCache(config=model.config)}
    reply: list[int] = []
    step = ids
    while not matcher.finished:
        with torch.inference_mode():
            logits = model(torch.tensor([step]), use_cache=True, **cache).logits[0, -1]
        logits = logits.masked_fill(~matcher.allowed(), -torch.inf)
        step = [matcher.accept(int(logits.argmax()))]
        reply.extend(step)
    return reply


def prompt(tokenizer: Any, system: str, user: str) -> list[int]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(text, add_special_tokens=False))


def test_a_small_model_calls_the_tool_with_the_right_argument(demo_pair: tuple[Any, Any]) -> None:
    model, tokenizer = demo_pair
    dialect = HermesDialect()
    ids = prompt(tokenizer, dialect.describe([MAGIC]), "What is the value of magic_function(3)?")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, model.config.vocab_size)
    matcher = GrammarMatcher(dialect.call_grammar([MAGIC]), vocabulary, max_tokens=60)
    parser = dialect.parser(id_seed="demo")
    parser.feed(tokenizer.decode(greedy(model, ids, matcher)))
    (call,) = parser.finish().tool_calls
    assert (call.name, call.arguments) == ("magic_function", {"input": 3})


def test_a_structured_answer_ends_whole_however_short(demo_pair: tuple[Any, Any]) -> None:
    model, tokenizer = demo_pair
    schema = {
        "type": "object",
        "properties": {"setup": {"type": "string"}, "punchline": {"type": "string"}},
        "required": ["setup", "punchline"],
    }
    ids = prompt(tokenizer, "You tell jokes as JSON.", "Tell a joke about cats.")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, model.config.vocab_size)
    for budget in (16, 24):
        matcher = GrammarMatcher(json_grammar(schema, what="joke"), vocabulary, max_tokens=budget)
        reply = greedy(model, ids, matcher)
        assert len(reply) <= budget
        assert set(json.loads(tokenizer.decode(reply))) == {"setup", "punchline"}
