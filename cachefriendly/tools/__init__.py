"""Token ids to tool calls and back: dialects, the reply parser, schemas and grammars."""
