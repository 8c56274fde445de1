"""How often what `explain` says would help does help: random cases, each answer carried out, the planner asked again.

``python -m tests.bench explain --cases 5000 --seed 1 [--scheduler 500] [--json]``. Cases are those of
:mod:`tests.waiting_cases`. A case is right where each of its answers alone lets in the pods that it is of, and all of
them together let in all. Told beside it: answers of which a part was not needed, most of them because pods in turn
before it are counted with. With ``--scheduler`` so many of the cases are also laid out for the real scheduler
(:mod:`tests.bench.explain_scheduler`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.bench.explain_scheduler import asked_of_scheduler
from tests.carried_out import all_helped, judge
from tests.waiting_cases import Case, cases

BOUND: Final = 0.99
SEVERAL: Final = "two or more"


def main(argv: Sequence[str]) -> int:
    """Print how many are right, by kind; 1 where they are too few."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench explain", description=__doc__)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scheduler", type=int, default=0, help="of so many of them ask the real scheduler, too")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    found = measured(asked.cases, asked.seed)
    share = found["share"]
    if asked.scheduler:
        against = dict(asked_of_scheduler(cases(asked.scheduler, seed=asked.seed)))
        not_bound = {number: why for number, why in against.items() if why}
        share = min(share, 1 - len(not_bound) / len(against))
        found |= {"asked_of_scheduler": len(against), "not_bound": not_bound}
    if asked.json:
        print(json.dumps(found))
    else:
        for kind, (right, many) in found["by_kind"].items():
            print(f"{kind:<16} {right:>5} of {many:>5}")
        print(*(f"{name}: {value}" for name, value in found.items() if name != "by_kind"), sep="\n")
    return int(share < BOUND)


def measured(many: int, seed: int) -> dict[str, Any]:
    """Of so many cases: how many are right, in all and by the obstacle that was put into them."""
    right, total, tally = Counter[str](), Counter[str](), Counter[str]()
    wrong: list[int] = []
    began = time.monotonic()
    for case in cases(many, seed=seed):
        judged, all_of_them = judge(case), all_helped(case)
        each = all(one.is_right for one in judged)
        kind = kind_of(case)
        total[kind] += 1
        right[kind] += each and all_of_them
        tally.update(
            answers=len(judged),
            answers_right=sum(one.is_right for one in judged),
            answers_with_more_than_needed=sum(one.is_spare for one in judged),
            cases_each_right=each,
            cases_all_right=all_of_them,
        )
        if not (each and all_of_them):
            wrong.append(case.number)
    return {
        "cases": many,
        "seed": seed,
        "share": round(right.total() / max(1, many), 4),
        **tally,
        "wrong": wrong,
        "seconds": round(time.monotonic() - began, 1),
        "by_kind": {kind: [right[kind], total[kind]] for kind in sorted(total)},
    }


def kind_of(case: Case) -> str:
    """The obstacle, where there is one."""
    return case.kinds[0] if len(case.kinds) == 1 else SEVERAL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
