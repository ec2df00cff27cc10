"""pyproject.toml in; requirements that hold every dependency at the lowest version it allows out: what ``make oldest`` installs.

Tools that are pinned (linters) are left out: they have wishes of their own, and judge the code, not what it runs with.
"""

import re
import sys
import tomllib
from pathlib import Path

FLOOR = re.compile(r"^([A-Za-z0-9._-]+(?:\[[a-z,]+\])?)>=([0-9][0-9a-z.]*)$")


def lowest(project: dict[str, object]) -> list[str]:
    """``name==version`` for every requirement of the form ``name>=version``, those of the extra "dev" too."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    wanted = [*project["dependencies"], *extras["dev"]]  # type: ignore[misc]
    found = [FLOOR.match(text.replace(" ", "")) for text in wanted]
    return sorted({f"{match[1]}=={match[2]}" for match in found if match})


if __name__ == "__main__":
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    sys.stdout.write("\n".join(lowest(tomllib.loads(text)["project"])) + "\n")
