"""No result of a kernel is ignored, and none that may be −1 is used as an index unchecked.

Kernels check no bounds: an index of −1 is the end of an array for them, and an unwritten one is
arbitrary. So a caller of a kernel that can fail has to compare its result, return it (then its own
callers have to), or pass it to `required`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "sirocco" / "kernels"
FOLDERS = ("sirocco", "services", "loadgen", "spark-jobs")
PACKAGE = "sirocco.kernels"
REQUIRED = "required"

# Here −1 is a result, documented at the kernel: no such term, no lower step.
ANSWERS = frozenset(
    {
        "store.ranked_state.last_step",
        "store.slice_text.find_term",
        "store.slice_text.only_term",
    }
)

Function = ast.FunctionDef


def kernels_of(tree: ast.Module) -> list[Function]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(
            "kernel" in {each.id for each in ast.walk(decorator) if isinstance(each, ast.Name)}
            for decorator in node.decorator_list
        )
    ]


def returned(function: Function) -> Iterator[ast.expr]:
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
            names |= {node.value.id} if isinstance(node.value, ast.Name) else set()
    # Possible values of a returned variable.
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and names & set(assigned_names(node)):
            yield node.value


def is_minus_one(node: ast.expr) -> bool:
    """Returns whether a node is −1, np.int64(−1), or a tuple that begins so."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return is_minus_one(node.args[0])
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and node.operand.value == 1
    )


def called(node: ast.AST, names: Mapping[str, str], kernels: frozenset[str]) -> str | None:
    """Returns the kernel that a node calls, if it is one of some.

    Args:
        node: perhaps a call.
        names: the meaning of a file's names: kernels, or modules of them.
        kernels: as `module.name`.
    """
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    name = None
    if isinstance(function, ast.Name):
        name = names.get(function.id)
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = f"{names.get(function.value.id)}.{function.attr}"
    return name if name in kernels else None


def sources() -> dict[Path, ast.Module]:
    """Returns the modules that name the package of kernels, and the kernels themselves."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    read = {path: path.read_bytes() for path in paths}
    return {
        path: ast.parse(text)
        for path, text in read.items()
        if KERNELS in path.parents or PACKAGE.encode() in text
    }


def module_of(path: Path) -> str | None:
    if KERNELS not in path.parents:
        return None
    return ".".join(path.relative_to(KERNELS).with_suffix("").parts)


def meanings(path: Path, tree: ast.Module) -> dict[str, str]:
    """Returns the meaning of a file's names, as far as they are kernels."""
    module = module_of(path)
    names = {} if module is None else {e.name: f"{module}.{e.name}" for e in kernels_of(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            base = str(node.module).removeprefix(PACKAGE).removeprefix(".")
            for each in node.names:
                name = f"{base}.{each.name}" if base else each.name
                names[each.asname or each.name] = name
    return names


def declared_results(sources: dict[Path, ast.Module]) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the kernels with a result, and those that return −1 on failure."""
    functions = {
        f"{module}.{each.name}": (list(returned(each)), names)
        for path, tree in sources.items()
        if (module := module_of(path)) is not None
        for names in (meanings(path, tree),)
        for each in kernels_of(tree)
    }
    returning = frozenset(name for name, (values, _) in functions.items() if values)
    failing = frozenset(n for n, (values, _) in functions.items() if any(map(is_minus_one, values)))
    failing -= ANSWERS
    while True:
        # A kernel that returns another one's result can fail like it.
        more = {
            name
            for name, (values, names) in functions.items()
            if any(called(value, names, failing) for value in values)
        }
        if more <= failing:
            return returning, failing
        failing |= more - ANSWERS


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def assigned_names(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    names = []
    for target in targets:
        names += [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
    return names


def is_looked_at(function: ast.AST, names: list[str]) -> bool:
    """Returns whether a function compares, requires or returns one of its names."""
    for node in ast.walk(function):
        looks = (
            isinstance(node, (ast.Compare, ast.Return, ast.Yield))
            or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == REQUIRED)
            # −1 plus one is 0, which means none: as in `get` of tables.
            or (isinstance(node, ast.IfExp) and isinstance(node.test, ast.Compare))
        )
        if looks and names_in(node) & set(names):
            return True
    return False


def faults_of(
    tree: ast.Module, names: Mapping[str, str], returning: frozenset[str], failing: frozenset[str]
) -> Iterator[tuple[int, str]]:
    if not names:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and (name := called(node.value, names, returning)):
            yield node.lineno, f"the result of {name} is ignored"
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        if not any(called(node, names, failing) for node in nodes):
            continue
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value:
                name = called(node.value, names, failing)
                if name and not is_looked_at(function, assigned_names(node)):
                    yield node.lineno, f"{name} may say −1, and nobody looks"
            index = node.slice if isinstance(node, ast.Subscript) else None
            for each in ast.walk(index) if index is not None else ():
                if name := called(each, names, failing):
                    yield node.lineno, f"{name} may say −1, and is an index"  # type: ignore[attr-defined]
            for argument in node.args if isinstance(node, ast.Call) else ():
                name = called(argument, names, failing)
                if name and getattr(node.func, "id", "") != REQUIRED and not is_cast(node):  # type: ignore[attr-defined]
                    yield argument.lineno, f"{name} may say −1, and is handed on unseen"


def is_cast(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(
        node.func, "attr", getattr(node.func, "id", "")
    ) in {"int", "int64"}


def test_no_result_of_a_kernel_is_ignored_and_no_failure_becomes_an_index() -> None:
    parsed = sources()
    returning, failing = declared_results(parsed)
    expected = {
        "base.stretch_table.find",
        "standing.term_table.find_term",
        "base.blocks.take_block",
    }
    assert expected | {"standing.range_post.unpost", "standing.term_ids.release_ids"} <= failing
    assert failing | {"standing.term_ids.acquire_ids", "standing.range_post.post"} <= returning
    assert returning >= ANSWERS
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path, tree in parsed.items()
        for line, fault in faults_of(tree, meanings(path, tree), returning, failing)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("find(a)", "the result of t.find is ignored"),
        ("kernels.find(a)", "the result of t.find is ignored"),
        ("return a[find(b)]", "t.find may say −1, and is an index"),
        ("at = find(a)\n    a[at] = 1", "t.find may say −1, and nobody looks"),
        ("erase(a, find(a))", "t.find may say −1, and is handed on unseen"),
        ("at = find(a)\n    if at < 0:\n        return\n    a[at] = 1", None),
        ("required(find(a), 'find')", None),
        ("return find(a)", None),
        ("a.find(b)", None),
    ],
)
def test_the_check_sees(body: str, expected: str | None) -> None:
    tree = ast.parse(f"def caller(a, b):\n    {body}\n")
    names, kernels = {"find": "t.find", "kernels": "t"}, frozenset({"t.find"})
    found = [fault for _, fault in faults_of(tree, names, kernels, kernels)]
    assert found == [expected] * bool(expected)
