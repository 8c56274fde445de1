"""Facts out of the look, for operations that ask while a plan is made.

pyinfra works out a fact's arguments and its command anew for each machine and each question: half of a plan's time.
What is asked depends on the arguments and on whom it is asked as, so it is worked out once for all machines. Whatever
is not as simple as that (global arguments, a fact that needs a program) goes pyinfra's own way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from pyinfra.api.facts import FactBase, get_fact
from pyinfra.api.host import Host
from pyinfra.facts.files import File

from roles.engine import global_arguments
from roles.engine.batched_facts import Ask, Looking

Questions = dict[Hashable, Ask]


class KnownFacts:
    """Stands in for one machine's ``get_fact``. ``questions`` is shared by all machines of a fleet."""

    def __init__(self, host: Host, here: Looking, questions: Questions) -> None:
        self._host, self._here, self._questions = host, here, questions

    def get(self, kind: type[FactBase[Any]], *args: Any, **kwargs: Any) -> Any:
        """Returns the fact, as `Host.get_fact` does."""
        state = self._host.state
        if state.is_executing or not _is_simple(kind) or not global_arguments.KEYS.isdisjoint(kwargs):
            return get_fact(state, self._host, kind, args=args, kwargs=kwargs)
        fact = kind()
        run_as = self._here.run_as(global_arguments.current(state, self._host))
        key = (kind, repr(args), repr(kwargs), repr(run_as))
        ask = self._questions.get(key)
        if ask is None:
            ask = self._questions[key] = self._here.ask(fact.command(*args, **kwargs), run_as)
        lines = self._here.answer(ask)
        return fact.process(list(lines)) if lines else fact.default()


_SIMPLE: Final[dict[type[FactBase[Any]], bool]] = {}


def _is_simple(kind: type[FactBase[Any]]) -> bool:
    """Ours, and the stock ones about a path: they keep nothing to themselves, and need nothing but their arguments."""
    known = _SIMPLE.get(kind)
    if known is None:
        ours = isinstance(kind, type) and issubclass(kind, FactBase) and kind.__module__.startswith("roles.facts.")
        known = _SIMPLE[kind] = ours or (isinstance(kind, type) and issubclass(kind, File))
    return known
