"""Writes simrun/client/sync from the modules of AsyncClient: `python -m tests.client.generate`.

Each class over Transport in simrun/client becomes one over Blocking of the same name, with the same methods without `async`: a coroutine is
waited for, an AsyncIterator becomes an Iterator.
"""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from ruff import find_ruff_bin

from simrun import client
from simrun.client import AsyncClient

SOURCE = Path(client.__file__).parent
TARGET = SOURCE / "sync"
RUFF = str(find_ruff_bin())
_HEAD = "# Made from simrun/client/{name}.py by `python -m tests.client.generate`; a test holds it to that"


def files() -> dict[str, str]:
    """Give the modules by their names, in shape."""
    bases = list(AsyncClient.__bases__)
    found = {f"{_module(base)}.py": _calls(_module(base), base.__name__) for base in bases}
    return {
        name: _formatted(text) for name, text in {**found, "__init__.py": _client(bases)}.items()
    }


def _module(base: type) -> str:
    return base.__module__.removeprefix("simrun.client.")


def _calls(name: str, class_name: str) -> str:
    tree = ast.parse((SOURCE / f"{name}.py").read_text())
    own = [item.name for item in tree.body if isinstance(item, ast.ClassDef)]
    own += [
        target.id
        for item in tree.body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    ]
    names = ", ".join(name for name in own if name != class_name)
    # What the signatures name of the module itself
    body: list[ast.stmt] = (
        ast.parse(f"from simrun.client.{name} import {names}").body if names else []
    )
    for item in tree.body:
        match item:
            case ast.Import() | ast.ImportFrom() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                body.append(item)
            case ast.ClassDef(name=found) if found == class_name:
                body.append(_class(item))
    first = [item for item in body if getattr(item, "module", "") == "__future__"]
    body = [*first, *(item for item in body if item not in first)]
    text = ast.unparse(ast.Module(body, [])).replace("AsyncIterator", "Iterator")
    doc = f'"""{class_name} of Client, each the call of the same name of AsyncClient."""'
    return f"{_HEAD.format(name=name)}\n{doc}\n{text}\n"


def _class(item: ast.ClassDef) -> ast.ClassDef:
    methods = [
        _method(part)
        for part in item.body
        if isinstance(part, ast.AsyncFunctionDef) and not part.name.startswith("_")
    ]
    doc = [part for part in item.body[:1] if isinstance(part, ast.Expr)]
    item.bases = [ast.Name("Blocking")]
    item.body = [*doc, *methods]
    return item


def _method(item: ast.AsyncFunctionDef) -> ast.FunctionDef:
    iterates = ast.unparse(item.returns or ast.Constant(None)).startswith("AsyncIterator")
    arguments = [ast.Name(part.arg) for part in item.args.args[1:]]
    keywords = [ast.keyword(part.arg, ast.Name(part.arg)) for part in item.args.kwonlyargs]
    call = ast.Call(ast.parse(f"self._client.{item.name}").body[0].value, arguments, keywords)  # type: ignore[attr-defined]  # an expression
    wait = ast.parse(f"self.{'_each' if iterates else '_wait'}").body[0].value  # type: ignore[attr-defined]  # likewise
    body: list[ast.stmt] = [item.body[0], ast.Return(ast.Call(wait, [call], []))]
    made = ast.FunctionDef(item.name, item.args, body, [], item.returns, lineno=0)
    return ast.fix_missing_locations(made)


def _client(bases: list[type]) -> str:
    imports = "\n".join(
        f"from simrun.client.sync.{_module(base)} import {base.__name__}" for base in bases
    )
    return f'''"""Client: the calls of AsyncClient for programs without a loop."""
{_HEAD.format(name="client")}
from __future__ import annotations
{imports}

class Client({", ".join(base.__name__ for base in bases)}):
    """Talks to a `simrun serve`. Use as a context manager; it may be used from several threads."""
'''


def _formatted(text: str) -> str:
    """Add the import that all need, drop those that only bodies needed, and give it the repository's shape."""
    if "(Blocking)" in text:
        text = text.replace(
            "from __future__ import annotations\n",
            "from __future__ import annotations\nfrom simrun.client.sync.blocking import Blocking\n",
        )
    for how in (["check", "--fix", "--select", "F401,I", "--quiet"], ["format", "--quiet"]):
        command = [RUFF, *how, "--stdin-filename", str(TARGET / "x.py"), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def main() -> None:
    """Write the modules, and remove those whose source has gone."""
    made = files()
    for path in TARGET.glob("*.py"):
        if path.name not in made and path.name != "blocking.py":
            path.unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
