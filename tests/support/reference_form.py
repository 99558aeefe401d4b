"""The disjunctive form, computed without the kernel; slow and simple."""

from __future__ import annotations

from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import AnyOf, Conjunction, Node, Not, Term
from sirocco.model.limits import DEFAULT_LIMITS, Limits

PRODUCTS_MAX = 16_384


def reference_form(node: Node, *, limits: Limits = DEFAULT_LIMITS) -> tuple[Conjunction, ...]:
    """Returns the simplified disjunctive normal form of a syntax tree.

    Raises:
        InvalidArgument: Too many conjunctions or too much work to find them, or a conjunction
            without a positive term.
    """
    builder = ReferenceBuilder(limits)
    masks = builder.form(node, negated=False)
    if not masks:
        return (builder.nothing(),)
    if len(masks) > limits.conjunctions:
        raise InvalidArgument(
            f"its disjunctive form has {len(masks)} conjunctions, "
            f"the limit is {limits.conjunctions}"
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


class ReferenceBuilder:
    """Computes with conjunctions as bit masks.

    Term number i has bit 2i when positive and bit 2i + 1 when negative; a conjunction
    is the union of its bits, so that absorption is a test for a subset.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers: dict[str, int] = {}
        self._steps_left = limits.expression_steps

    def form(self, node: Node, *, negated: bool) -> list[int]:
        """Returns the masks of the (negated) node's conjunctions; De Morgan on the way down."""
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
        positive_bits = self._positive_bits()
        products: set[int] = set()
        for a in left:
            for b in right:
                mask = a | b
                if not mask & (mask >> 1) & positive_bits:
                    products.add(mask)
            if len(products) > PRODUCTS_MAX:
                self._too_much()
        return self._absorb(products)

    def _absorb(self, masks: set[int]) -> list[int]:
        """Returns the masks of which no other is a subset."""
        kept: list[int] = []
        for mask in sorted(masks, key=lambda m: (m.bit_count(), m)):
            self._spend(len(kept))
            # A mask that absorbs this one has fewer bits and was kept before it.
            if not any(mask & other == other for other in kept):
                kept.append(mask)
        return kept

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
        """Returns a conjunction that no object satisfies, of a term of the expression."""
        term = min(self._numbers)
        return Conjunction((term,), (term,))

    def conjunction(self, mask: int) -> Conjunction:
        """Returns the conjunction of a mask."""
        positive = [t for t, i in self._numbers.items() if mask >> (2 * i) & 1]
        negative = [t for t, i in self._numbers.items() if mask >> (2 * i + 1) & 1]
        return Conjunction(tuple(sorted(positive)), tuple(sorted(negative)))
