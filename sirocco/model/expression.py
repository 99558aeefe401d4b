"""The boolean language over words: AND (also by adjacency), OR, NOT, parentheses, ANY(...).

Grammar, operators only in capitals, NOT binds strongest, OR weakest::

    either := both ("OR" both)*
    both   := unary (["AND"] unary)*
    unary  := "NOT" unary | "(" either ")" | "ANY" "(" word+ ")" | word
    word   := token-run | phrase | beginning "*"

A phrase stands in quotes; its tokens have to be side by side in a text. A word without white space,
parentheses and quotes is the phrase of its tokens. A beginning has at least two characters of one
token, in a script that is written with spaces. Within ANY the words are alternatives.

`Expression` holds the disjunctive normal form, which the indexes use. Contradictory conjunctions
are dropped, except one if there is no other; conjunctions absorbed by another are removed. Each
remaining one has at least one positive term, which the index needs to find it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.disjunctive import TOO_MANY, absorb_masks, multiply_masks
from sirocco.kernels.base.hash_placement import secret
from sirocco.model.errors import InvalidArgument
from sirocco.model.folding.folded_terms import folded_tokens_of, present_terms
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.patterns import FOLDED, begins, held_patterns, is_pattern, phrase
from sirocco.model.text import is_unspaced, tokens_of

_TOKEN = re.compile(r"[()]|\"[^\"]*\"|\"|[^\s()\"]+")
_MARKS = frozenset('"*')
# By a character that belongs to no token, but is no blank, so that words stay words.
_WITHOUT_MARKS = str.maketrans(dict.fromkeys(_MARKS, "'"))
_OPERATORS = frozenset({"AND", "OR", "NOT", "ANY"})

# The form of most standing queries: ASCII words of one term each, separated by single spaces.
_PLAIN = re.compile(r"\w+(?: \w+)*", re.ASCII)

# Tokens of a phrase. A text is read from each of its tokens as far as a phrase goes: without bound,
# one word repeated in a phrase and in a text of 64 KB would take seconds.
_PHRASE_TOKENS_MAX = 64

_BEGINNING_MIN = 2

# Distinct products held at a time while the disjunctive form is built. Factors are multiplied
# smallest first, so an expression with at most 256 final conjunctions rarely comes near; without a
# bound nine factors of ten alternatives would take a gigabyte.
_PRODUCTS_MAX = 16_384

# Up to this many products, or masks to absorb, Python is as fast as a native call with its setup.
_NATIVE_MIN = 48

# A product's place in a table must not be predictable, whatever PYTHONHASHSEED is.
_SECRET = secret()[0]


@dataclass(frozen=True, slots=True)
class Term:
    """Leaf of the syntax tree: holds if the token or pattern is in the object's text."""

    term: str


@dataclass(frozen=True, slots=True)
class Not:
    """Holds if the operand does not."""

    operand: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    """Holds if all operands do."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Holds if at least one operand does."""

    operands: tuple[Node, ...]


Node = Term | Not | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All positive terms present and all negative terms absent.

    A term is a token or a pattern (`patterns`).

    Attributes:
        positive: Terms in code point order, at least one.
        negative: Terms in code point order.
    """

    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()

    def matches(self, terms: AbstractSet[str]) -> bool:
        """Returns whether the tokens and patterns of an object satisfy the conjunction."""
        return all(t in terms for t in self.positive) and terms.isdisjoint(self.negative)


@dataclass(frozen=True, slots=True)
class Expression:
    """A boolean expression in disjunctive normal form.

    Attributes:
        source: The expression as written; two expressions are equal if their disjunctive forms are,
            whatever their source.
        conjunctions: At least one, at most `Limits.conjunctions`, sorted.
        fold: Whether accents do not matter: then all terms are folded ones (`folding`).
    """

    source: str = field(compare=False)
    conjunctions: tuple[Conjunction, ...]
    fold: bool = field(default=False, compare=False)

    @classmethod
    def parse(
        cls,
        source: str,
        field: str = "text",
        *,
        limits: Limits = DEFAULT_LIMITS,
        fold: bool = False,
    ) -> Self:
        """Parses an expression.

        Args:
            source: The expression.
            field: Path of its member, for errors.
            limits: Bounds of length, depth, terms, conjunctions and work.
            fold: Whether accents do not matter.

        Raises:
            InvalidArgument: Malformed (the message gives the character position, from 0),
                empty, over a limit, or with a conjunction of negations only.
        """
        terms = plain_terms(source, limits)
        if terms is not None:
            # Words of ASCII have no accents.
            terms = tuple(f"{FOLDED}{term}" for term in terms) if fold else terms
            return cls(source, (Conjunction(terms),), fold)
        try:
            node = _parse_forgiving(source, limits, fold=fold)
            return cls(source, disjunctive_form(node, limits=limits), fold)
        except InvalidArgument as error:
            raise error.within(field) from None

    @property
    def patterns(self) -> frozenset[str]:
        """The phrases and beginnings among its terms."""
        return frozenset(
            term
            for one in self.conjunctions
            for term in (*one.positive, *one.negative)
            if is_pattern(term)
        )

    def present_in(self, text: str) -> frozenset[str]:
        """Returns the tokens of a text, and those patterns and folded terms that it holds."""
        if not self.fold:
            return self.present(tokens_of(text))
        every = (each for one in self.conjunctions for each in (*one.positive, *one.negative))
        return present_terms(every, text)

    def present(self, tokens: Iterable[str]) -> frozenset[str]:
        """Returns the tokens of a text, given in order, and those patterns that it holds.

        An expression to which accents do not matter needs the text itself: see `present_in`.
        """
        listed = list(tokens)
        return frozenset(listed) | held_patterns(self.patterns, listed)

    def matches(self, tokens: Iterable[str]) -> bool:
        """Returns whether an object whose text has these tokens, in order, satisfies it."""
        present = self.present(tokens)
        return any(conjunction.matches(present) for conjunction in self.conjunctions)


def plain_terms(source: str, limits: Limits) -> tuple[str, ...] | None:
    """Returns the terms of `a b` and `a AND b`, sorted; None for expressions that need the grammar.

    An order of magnitude faster than the grammar, with the same result.
    """
    if len(source) > limits.expression_bytes or not _PLAIN.fullmatch(source):
        return None
    words = source.replace(" AND ", " ").split(" ")
    if len(words) > limits.expression_terms or not _OPERATORS.isdisjoint(words):
        return None
    return tuple(sorted({word.lower() for word in words}))


def _parse_forgiving(source: str, limits: Limits, *, fold: bool) -> Node:
    """Does what `parse_syntax` does; ignores marks that are errors, if the limits say so."""
    try:
        return parse_syntax(source, limits=limits, fold=fold)
    except InvalidArgument:
        if not limits.forgives_marks or not _MARKS & frozenset(source):
            raise
    return parse_syntax(source.translate(_WITHOUT_MARKS), limits=limits, fold=fold)


def parse_syntax(source: str, *, limits: Limits = DEFAULT_LIMITS, fold: bool = False) -> Node:
    """Returns the syntax tree of an expression.

    Raises:
        InvalidArgument: Malformed or over a limit of size or depth.
    """
    return _Parser(source, limits, fold=fold).parse()


class _Parser:
    """Recursive descent over the tokens; `_next` is the index of the token to read."""

    def __init__(self, source: str, limits: Limits, *, fold: bool) -> None:
        # At most four bytes per character: a certainly short source need not be encoded.
        if len(source) > limits.expression_bytes or (
            4 * len(source) > limits.expression_bytes
            and len(source.encode(errors="replace")) > limits.expression_bytes
        ):
            raise InvalidArgument(f"is longer than {limits.expression_bytes} bytes")
        self._tokens = [(m[0], m.start()) for m in _TOKEN.finditer(source)]
        self._end = len(source)
        self._limits = limits
        self._mark = FOLDED if fold else ""
        self._tokens_of = folded_tokens_of if fold else tokens_of
        self._next = 0
        self._term_count = 0
        self._beginning_bytes = 0

    def parse(self) -> Node:
        if not self._tokens:
            raise InvalidArgument("the expression is empty")
        node = self._either(0)
        if self._next < len(self._tokens):
            self._fail("unexpected )")
        return node

    def _peek(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def _position(self) -> int:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else self._end

    def _fail(self, what: str, further: int = 0) -> NoReturn:
        """Refuses the expression at the present token, or so many characters further."""
        raise InvalidArgument(f"{what} at character {self._position() + further}")

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            self._fail(f"expected {token}")
        self._next += 1

    def _either(self, depth: int) -> Node:
        operands = [self._both(depth)]
        while self._peek() == "OR":
            self._next += 1
            operands.append(self._both(depth))
        return operands[0] if len(operands) == 1 else AnyOf(tuple(operands))

    def _both(self, depth: int) -> Node:
        operands = [self._unary(depth)]
        while (token := self._peek()) not in (None, ")", "OR"):
            if token == "AND":
                self._next += 1
            operands.append(self._unary(depth))
        return operands[0] if len(operands) == 1 else AllOf(tuple(operands))

    def _unary(self, depth: int) -> Node:
        if depth > self._limits.expression_depth:
            self._fail(f"nested deeper than {self._limits.expression_depth}")
        token = self._peek()
        if token == "NOT":
            self._next += 1
            return Not(self._unary(depth + 1))
        if token == "(":
            self._next += 1
            node = self._either(depth + 1)
            self._expect(")")
            return node
        if token == "ANY":
            return self._alternatives()
        return self._word()

    def _alternatives(self) -> Node:
        self._next += 1
        self._expect("(")
        operands = [self._word()]
        while self._peek() != ")":
            operands.append(self._word())
        self._next += 1
        return operands[0] if len(operands) == 1 else AnyOf(tuple(operands))

    def _word(self) -> Node:
        token = self._peek()
        if token is None:
            self._fail("expected a word but the expression ends")
        if token in _OPERATORS or token in ("(", ")"):
            self._fail(f"expected a word instead of {token}")
        term, count = self._term(token)
        self._term_count += count
        if self._term_count > self._limits.expression_terms:
            self._fail(f"more than {self._limits.expression_terms} terms")
        self._next += 1
        return Term(f"{self._mark}{term}")

    def _term(self, token: str) -> tuple[str, int]:
        """Returns the term of a word, and how many tokens it has."""
        if token == '"':
            self._fail("a quote without its partner")
        is_phrase = token.startswith('"')
        starred = token.endswith("*") and not is_phrase
        place = token.find("*", 0, len(token) - starred)
        if place >= 0:
            self._fail("a star that does not end a word", place)
        if starred:
            return self._beginning(token), 1
        tokens = self._tokens_of(token)
        if not tokens:
            if is_phrase:
                self._fail("an empty phrase")
            self._fail(f"the word {token!r:.60} holds no letter, digit or emoji")
        if len(tokens) > _PHRASE_TOKENS_MAX and not self._limits.forgives_marks:
            self._fail(f"a phrase of more than {_PHRASE_TOKENS_MAX} words")
        return (tokens[0] if len(tokens) == 1 else phrase(tokens)), len(tokens)

    def _beginning(self, token: str) -> str:
        tokens = self._tokens_of(token)
        if len(tokens) != 1 or is_unspaced(tokens[0]):
            what = "one word of a script with spaces"
            self._fail(f"a star after {token[:-1]!r:.60}, which is not {what},", len(token) - 1)
        if len(tokens[0]) < _BEGINNING_MIN:
            what = f"fewer than {_BEGINNING_MIN} characters before the star"
            self._fail(what, len(token) - 1)
        # As they were analysed, which is what indexes hold.
        self._beginning_bytes += len(tokens[0].encode())
        if self._beginning_bytes > self._limits.beginning_bytes:
            self._fail(f"more than {self._limits.beginning_bytes} bytes of beginnings")
        return begins(tokens[0])


def disjunctive_form(node: Node, *, limits: Limits = DEFAULT_LIMITS) -> tuple[Conjunction, ...]:
    """Returns the simplified disjunctive normal form of a syntax tree.

    Raises:
        InvalidArgument: Too many conjunctions or too much work to find them, or a conjunction has
            no positive term.
    """
    builder = _FormBuilder(limits)
    masks = builder.form(node, negated=False)
    if not masks:
        return (builder.nothing(),)
    if len(masks) > limits.conjunctions:
        raise InvalidArgument(
            f"its disjunctive form has {len(masks)} conjunctions, "
            f"the limit is {limits.conjunctions}"
        )
    expanded = sum(mask.bit_count() for mask in masks)
    if expanded > limits.expanded_terms:
        raise InvalidArgument(
            f"its disjunctive form has {len(masks)} conjunctions of {expanded} terms together, "
            f"the limit is {limits.expanded_terms}"
        )
    conjunctions = sorted(
        (builder.conjunction(mask) for mask in masks), key=lambda c: (c.positive, c.negative)
    )
    for conjunction in conjunctions:
        if not conjunction.positive:
            negations = " ".join(f"NOT {term}" for term in conjunction.negative)
            raise InvalidArgument(
                f"the alternative {negations!r:.80} holds only negations; "
                "each needs a term that must be present"
            )
    return tuple(conjunctions)


class _FormBuilder:
    """Computes with conjunctions as bit masks.

    The term of number i has bit 2i when positive and bit 2i + 1 when negative; a conjunction
    is the union of its bits, so that absorption is a test for a subset.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers: dict[str, int] = {}
        self._terms: list[str] = []
        self._steps_left = limits.expression_steps

    def form(self, node: Node, *, negated: bool) -> list[int]:
        """Returns the masks of the (negated) node's conjunctions, by De Morgan's laws."""
        if isinstance(node, Term):
            number = self._numbers.setdefault(node.term, len(self._numbers))
            return [1 << (2 * number + negated)]
        if isinstance(node, Not):
            return self.form(node.operand, negated=not negated)
        forms = [self.form(operand, negated=negated) for operand in node.operands]
        if isinstance(node, AnyOf) != negated:
            return self._absorb({mask for masks in forms for mask in masks})
        forms.sort(key=len)
        product = forms[0]
        for factor in forms[1:]:
            product = self._multiply(product, factor)
        return product

    def _multiply(self, left: list[int], right: list[int]) -> list[int]:
        self._spend(len(left) * len(right))
        if len(left) * len(right) > _NATIVE_MIN:
            return self._multiply_native(left, right)
        positive_bits = self._positive_bits()
        products: set[int] = set()
        for a in left:
            for b in right:
                mask = a | b
                if not mask & (mask >> 1) & positive_bits:
                    products.add(mask)
        return self._absorb(products)

    def _multiply_native(self, left: list[int], right: list[int]) -> list[int]:
        words = self._words()
        room = min(len(left) * len(right), _PRODUCTS_MAX)
        products = np.empty((room, words), np.uint64)
        table = np.empty(1 << (2 * room - 1).bit_length(), np.int32)
        count = multiply_masks(_array(left, words), _array(right, words), _SECRET, products, table)
        if count == TOO_MANY:
            self._too_much()
        return self._absorb_native(products[:count])

    def _absorb(self, masks: set[int]) -> list[int]:
        """Returns the masks that have no other one as a subset."""
        if len(masks) > _NATIVE_MIN:
            return self._absorb_native(_array(masks, self._words()))
        kept: list[int] = []
        for mask in sorted(masks, key=lambda m: (m.bit_count(), m)):
            self._spend(len(kept))
            # A mask that absorbs this one has fewer bits and was kept before it.
            if not any(mask & other == other for other in kept):
                kept.append(mask)
        return kept

    def _absorb_native(self, masks: NDArray[np.uint64]) -> list[int]:
        kept, spent = np.empty(len(masks), np.int64), np.empty(1, np.int64)
        count = absorb_masks(masks, self._steps_left, kept, spent)
        self._spend(int(spent[0]))
        data = masks[kept[:count]].tobytes()
        size = 8 * masks.shape[1]
        return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]

    def _words(self) -> int:
        return (2 * len(self._numbers) + 63) // 64

    def _positive_bits(self) -> int:
        return ((1 << (2 * len(self._numbers))) - 1) // 3

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            self._too_much()

    def _too_much(self) -> None:
        raise InvalidArgument(
            "too entangled: its disjunctive form cannot be brought below "
            f"{self._limits.conjunctions} conjunctions in the work allowed"
        )

    def nothing(self) -> Conjunction:
        """Returns a conjunction that no object satisfies, built from a term of the expression."""
        term = min(self._numbers)
        return Conjunction((term,), (term,))

    def conjunction(self, mask: int) -> Conjunction:
        """Returns the conjunction of a mask."""
        terms = self._terms = self._terms or list(self._numbers)
        signed: tuple[list[str], list[str]] = ([], [])
        while mask:
            bit = (mask & -mask).bit_length() - 1
            signed[bit & 1].append(terms[bit >> 1])
            mask &= mask - 1
        return Conjunction(*(tuple(sorted(each)) for each in signed))


def _array(masks: Iterable[int], words: int) -> NDArray[np.uint64]:
    """Returns masks as rows of words, u8[n, words]."""
    data = b"".join(mask.to_bytes(8 * words, "little") for mask in masks)
    return np.frombuffer(data, "<u8").reshape(-1, words)
