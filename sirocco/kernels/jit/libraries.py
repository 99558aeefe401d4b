"""Libraries of compiled code, which do no more than a kernel needs.

Numba makes native code, and a wrapper that Python calls, for every function that it compiles, and
when it loads a function from its cache it also reads what only the compilation of callers needs.
Most functions of ours are small and called by kernels alone: LLVM includes their bitcode in the
callers. They are two thirds of the compilation, and reading bitcode was most of a process's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import binding as llvm
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import CompileResult, compile_result
from numba.core.environment import lookup_environment

__all__ = ["KernelLibrary", "libraries_of_kernels", "rebuilt", "reduced"]

# How Numba begins the name of the variable that refers to a function's environment.
_ENVIRONMENT = "_ZN08NumbaEnv"


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code as it is compiled. It is bitcode until the address of a function is wanted."""

    _is_native = False

    def get_pointer_to_function(self, name: str) -> int:
        """Makes native code, and returns the address of a function."""
        self._ensure_finalized()
        if not self._is_native:
            self._is_native = True
            super()._finalize_final_module()
            # Variables of the functions that this code has included: theirs is not native.
            for environment in self.environments():
                self._codegen.set_env(environment.env_name, environment)
        return int(super().get_pointer_to_function(name))

    def environments(self) -> list[Any]:
        """Returns the environments of the functions in the code that have Python's objects."""
        names = (each.name for each in self._final_module.global_variables)
        found = (lookup_environment(name) for name in names if name.startswith(_ENVIRONMENT))
        # The others are read by nothing, and to load one imports the module of its function.
        return [each for each in found if each is not None and each.consts]

    def saved(self) -> tuple[bytes | None, bytes]:
        """Returns native code, if there is any, and bitcode for the compilation of callers."""
        self._ensure_finalized()
        native = self._get_compiled_object() if self._is_native else None
        return native, self._get_module_for_linking().as_bitcode()

    def _optimize_functions(self, ll_module: Any) -> None:
        # As Numba does, but with one pass manager for all, and without one for declarations.
        ll_module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code out of the cache.

    Args:
        codegen: Numba's generator of code.
        name: of the library.
        native: native code, None if only other kernels call it.
        bitcode: for the compilation of callers; parsed when one is compiled.
    """

    def __init__(self, codegen: Any, name: str, native: bytes | None, bitcode: bytes) -> None:
        # Not that of the direct parent, which makes an empty module.
        super(CPUCodeLibrary, self).__init__(codegen, name)
        self._linking_libraries: list[Any] = []
        self._final_module = self._shared_module = None
        self._bitcode = bitcode
        self._disable_inspection = True
        self._finalized = True
        if native is not None:
            codegen._engine._ee.add_object_file(llvm.ObjectFileRef.from_data(native))

    def get_pointer_to_function(self, name: str) -> int:
        """Returns the address of a function of the native code."""
        return int(self._codegen._engine.get_function_address(name))

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = llvm.parse_bitcode(self._bitcode)
        return self._shared_module


@contextmanager
def libraries_of_kernels(target: Any) -> Iterator[None]:
    """Lets Numba compile to our libraries; the caller holds Numba's compiler lock.

    Args:
        target: Numba's target context.
    """
    codegen = target.codegen()
    former, codegen._library_class = codegen._library_class, KernelLibrary
    try:
        yield
    finally:
        codegen._library_class = former


def reduced(result: CompileResult) -> tuple[Any, ...]:
    """Returns what the cache keeps of a compiled function."""
    library, described = result.library, result.fndesc
    # Types of variables are wanted no more, and some cannot be pickled.
    described.typemap = described.calltypes = None
    code = library.saved()
    environments = [each for each in library.environments() if each.can_cache()]
    return (
        *(library.name, code, described, result.environment, result.signature),
        *(result.reload_init, environments),
    )


def rebuilt(target: Any, kept: Sequence[Any]) -> CompileResult:
    """Returns a compiled function out of what the cache keeps of it."""
    name, (native, bitcode), described, environment, signature, reloads, environments = kept
    for reload in reloads:
        reload()
    library = LoadedLibrary(target.codegen(), name, native, bitcode)
    entry = None
    if native is not None:
        entry = target.get_executable(library, described, environment)
        for each in environments:
            library.codegen.set_env(each.env_name, each)
    return compile_result(
        target_context=target,
        typing_context=target.typing_context,
        library=library,
        environment=environment,
        entry_point=entry,
        fndesc=described,
        signature=signature,
        objectmode=False,
        lifted=(),
        reload_init=reloads,
        referenced_envs=environments,
    )
