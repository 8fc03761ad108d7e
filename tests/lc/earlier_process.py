"""An agent that ran before a restart: run as a module, it asks two questions on a file's thread.

Writes what its model calls forwarded and generated, as JSON.
"""

from __future__ import annotations

import json
import sys

from langgraph.checkpoint.sqlite import SqliteSaver

from tests.lc.thread import asking, thread_on


def main() -> None:
    with (
        SqliteSaver.from_conn_string(sys.argv[1]) as saver,
        thread_on(saver, middleware=True) as thread,
    ):
        for text in ("one?", "two?"):
            thread.run(asking(text))
        calls = [(call.prompt_ids, call.output_ids) for call in thread.calls]
    sys.stdout.write(json.dumps(calls))


if __name__ == "__main__":
    main()
