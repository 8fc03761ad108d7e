"""The LlamaIndex half of ``cachefriendly demo``: a chat engine over several turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cachefriendly.demo_run import DemoScenario
from cachefriendly_li.chat_engine import SimpleChatEngine
from cachefriendly_li.llm import CacheFriendlyLLM

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["DEMO"]

_SYSTEM: Final = """\
You are the receptionist of a hotel. Answer in one short sentence, and use only these house notes.
- Check-in starts at 3 pm. Check-out ends at 11 am. Luggage can stay at the reception after that.
- Breakfast is served from 7 am to 10 am in the garden room on the ground floor. It costs 12 euros.
- The swimming pool is on the roof and is open from 8 am to 8 pm. Towels are next to the lift.
- The wireless network is called Aurora and its password is bluetile.
- The tram to the old town leaves every ten minutes from the stop in front of the hotel.
- A taxi to the airport takes twenty minutes and costs about 15 euros.
- Dogs are welcome and stay for free. Bicycles can be rented at the reception for 10 euros a day.
- The restaurant on the first floor is open from 6 pm to 11 pm and is famous for its grilled fish.
"""
_QUESTIONS: Final = (
    "When does breakfast start?",
    "How much does it cost?",
    "Where is the swimming pool?",
    "What is the password of the wireless network?",
    "When is the restaurant open?",
    "What is the restaurant famous for?",
)


def _run(engine: Engine) -> list[str]:
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=32, generate_kwargs={"temperature": 0})
    chat = SimpleChatEngine.from_defaults(llm=llm, system_prompt=_SYSTEM)
    return [chat.chat(question).response for question in _QUESTIONS]


DEMO: Final = DemoScenario("LlamaIndex chat engine", _run)
