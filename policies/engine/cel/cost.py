"""The cost of an expression, estimated from its syntax tree before it is ever evaluated.

Every node of the tree has a price, in microseconds of one core as bench/cost.py measures them; a loop multiplies the
price of its body by the most elements that it can run over (`size_bounds`), and nested loops multiply each other. The
estimate also counts how often a part is evaluated: a part that reads only the Pod once for each decision, a part that joins
Pod and node once for each node, a part that reads only a node once for each version of the node.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cel.expr import syntax_pb2

from policies.engine.cel.expression_split import Split, Subexpression, split
from policies.engine.cel.functions import DECLARATIONS, FORM_LENGTH, MAX_DIGITS
from policies.engine.cel.regex_cost import UNKNOWN, cost_of
from policies.engine.cel.size_bounds import ANYTHING, KEY_LENGTH, NUMBER_LENGTH, ROOTS, SCALAR, Bound, joined, of_value
from policies.engine.cel.syntax import BOTH_ENDS, CLOCK, Tree, children, constant_string, fault_at, unpack
from policies.engine.cel.vectors import OPERATORS
from policies.engine.objects.node import Path

# The cluster that costs are estimated for.
NODES = 5_000
MAX_EXPRESSION_MILLISECONDS = 250
# The usual maximum of Pods on which a preemption evaluates victims rules: kube-scheduler finds candidates on a tenth of the
# nodes (preemption.go v1.36.3, GetOffsetAndNumCandidates), and most of them have one or two.
VICTIMS = 1_000
OF_DECISION, OF_PREEMPTION = f"a decision on {NODES:,} nodes", f"a preemption of {VICTIMS:,} Pods"
# The limits for one expression, and for all of a rule set, in a decision on NODES nodes. kube-scheduler waits for it for
# every Pod, and gives up after 3 s, as set in deploy/kube-scheduler/config.yaml.
MAX_RULE_SET_MILLISECONDS = 1_000
# On how many nodes a decision evaluates the parts that read only a node. In nearly all decisions a few nodes changed;
# after a publish all are evaluated once, before the Revision is served.
RENEWED_SHARE = 0.1

# Microseconds to start an evaluation, and for each variable that is passed.
_EVALUATION, _VARIABLE = 5.0, 0.5
# Microseconds to pass one value inside an object, and a character of a text.
_VALUE, _CHARACTER = 0.15, 0.0003
# Microseconds to find out whether a node looks like an earlier one, and for each value that is compared.
_LOOKING, _LOOKING_AT_VALUE = 8.0, 0.05
# Microseconds to evaluate a node of the tree, for an iteration of a loop, and to copy an element of a list.
_STEP, _ITERATION, _COPY = 0.03, 0.12, 0.04
# Microseconds for one operator over columns, for each node; and how many operators a look-up in a list or a map costs.
_VECTOR, _IN_LIST = 0.005, 20
# Microseconds to count Pods, and for each node that gets a count.
_COUNT, _COUNTED = 40.0, 0.02
# Operators run over columns, unless a node lacks a value or numbers overflow: then CEL evaluates node by node. Up to this
# many microseconds for each node that is cheap enough not to be counted.
_LEFT_TO_CEL = 20.0

_PYTHON_CALL, _OTHER_CALL = 3.0, 0.5
# Microseconds for a function in Python, and for one whose price isn't known; for each character that a function reads,
# and each piece that it may split a text into or join.
_EACH_CHARACTER, _EACH_PIECE = 0.002, 0.06
# Microseconds to compare a character where a text is searched: at each place the search may go on to the end of what it looks for,
# as for 'aaaab' in 'aaaaaaaaa'.
_COMPARED = 0.00002
# Microseconds for a function in Python to read a character.
_READ_IN_PYTHON = 0.015
# Microseconds to format a value inside an object, a list or a map as text, and the characters of the result.
_WRITTEN, _CHARACTERS_WRITTEN = 2.0, 300
# How long the text of a number can be: a precision of at most 1,000, or all digits of 1e308.
_WIDE, _DIGITS_WRITTEN = re.compile(r"%(\.|[fe])"), 1_310

_STEPS = (frozenset(OPERATORS) - {"double"}) | {"@not_strictly_false", "hasValue", "optional.none"}
# A quantity in CEL is a map, which an expression may loop over like any other map.
_QUANTITY = Bound(1, element=Bound(FORM_LENGTH, element=SCALAR), is_map=True, key_length=MAX_DIGITS + NUMBER_LENGTH)
_QUANTITY_CALLS = {name: _QUANTITY if result == "quantity" else SCALAR for name, _, _, result, *_ in DECLARATIONS}
_CHAINS = frozenset({"_[_]", "_[?_]", "_?._"})
_SAME_CALLS = frozenset({"orValue", "or", "value", "optional.of", "optional.ofNonZeroValue", "dyn"})
_ELEMENT_CALLS = frozenset({"first", "last"})
_KEPT_CALLS = frozenset({"lowerAscii", "upperAscii", "trim", "substring", "charAt", "reverse", "string", "bytes"})
# Functions whose result is longer than their input: a character may become an escape, and two quotes are added.
_QUOTING_CALLS = frozenset({"strings.quote"})
_SEARCHING_CALLS = frozenset({"contains", "indexOf", "lastIndexOf", "replace", "split"})
_PIECE_CALLS = frozenset({"replace", "split", "join", "format"})

_REMEDIES = {
    "what joins Pod and node": "let Pod and node meet in ==, <, + and the like, and loop over one of them only",
    "what reads the node": "loop over less of the node, or let a label say it",
    "what reads the Pod": "loop over less of the Pod or of params",
    "what reads the victim": "loop over less of the victim, the Pod, the node or params",
}


class Cost(NamedTuple):
    """Estimated microseconds.

    Attributes:
        pod: for parts that are evaluated once for each decision.
        mixed: for parts that are evaluated for each node in each decision.
        node: for parts that are evaluated once for each version of a node.
        line: where the part that costs the most starts, counted from 1.
        column: where that part starts, counted from 1.
        heaviest: what that part is: "what joins Pod and node", "what reads the node", "what reads the Pod" or, of a victims
            rule, "what reads the victim".
        occasion: when it costs that.
    """

    pod: float
    mixed: float
    node: float
    line: int
    column: int
    heaviest: str
    occasion: str = OF_DECISION

    def milliseconds(self) -> float:
        """Estimate what the expression costs in one decision."""
        return (self.pod + NODES * (self.mixed + RENEWED_SHARE * self.node)) / 1000

    @property
    def remedy(self) -> str:
        """Advice on how to make the heaviest part cheaper."""
        return _REMEDIES[self.heaviest]


def too_costly(cost: Cost) -> str | None:
    """Return why an expression costs too much, with the figures and what to do; None when it doesn't."""
    found = cost.milliseconds()
    if found <= MAX_EXPRESSION_MILLISECONDS:
        return None
    return (
        f"is too costly: about {found:,.0f} ms in {cost.occasion}, at most "
        f"{MAX_EXPRESSION_MILLISECONDS:,} are allowed. Most of it is {cost.heaviest}: {cost.remedy}"
    )


def too_costly_together(costs: Sequence[tuple[float, str]], occasion: str = OF_DECISION) -> str | None:
    """Return why a rule set's expressions cost too much together; None when they don't.

    Args:
        costs: milliseconds of each, and its path in the document.
        occasion: when they cost that.
    """
    found = sum(milliseconds for milliseconds, _ in costs)
    if found <= MAX_RULE_SET_MILLISECONDS:
        return None
    most, path = max(costs)
    return (
        f"the expressions are too costly together: about {found:,.0f} ms in {occasion}, at most "
        f"{MAX_RULE_SET_MILLISECONDS:,} are allowed. The most costly is {path} with {most:,.0f}"
    )


def assumed_at(root: str, path: Path) -> Bound:
    """Return the assumed bound of the value at a path of a Pod or a node."""
    return _at(ROOTS[root], path)


def estimate_of_node(part: Subexpression, whole: Split, node: Bound, params: Mapping[str, object]) -> float:
    """Estimate the milliseconds of a decision that a part of an expression and what is made of its value cost, if all nodes were like this one.

    Args:
        part: the part.
        whole: the split expression that it is a part of.
        node: the bound of what the part reads of a node.
        params: the constants of the rule set.
    """
    roots = {**ROOTS, "params": of_value(params)}
    priced = _Weighed(part, {**roots, "node": node})
    others = [each for each in (*whole.of_node, *whole.of_pod) if each is not part]
    named = {each.variable: _Weighed(each, roots).bound for each in others} | {part.variable: priced.bound}
    mixed = max(_rest_cost(whole.rest, _Walk(named)), _handing_over(priced.bound))
    return NODES * (RENEWED_SHARE * priced.cost + mixed) / 1000


def estimate(compiled: bytes, params: Mapping[str, object], objects: Mapping[str, Bound] = ROOTS) -> Cost:
    """Estimate what a compiled and checked expression costs, with these params.

    Args:
        compiled: the expression.
        params: the constants of its rule set.
        objects: known bounds of Pods and nodes that replace the assumed ones.

    Raises:
        ExpressionError: it can't be split.
    """
    tree = Tree(compiled)
    found = split(tree.serialized)
    roots = {**ROOTS, **objects, "params": of_value(params)}
    of_node = [_Weighed(part, roots) for part in found.of_node]
    for part in of_node:
        part.cost += _LOOKING + _LOOKING_AT_VALUE * part.values
    of_pod = [_Weighed(part, roots) for part in found.of_pod]
    rest = _Walk({part.variable: part.bound for part in (*of_node, *of_pod)})
    rest_cost = _rest_cost(found.rest, rest)
    variables = _variables(found.rest)
    of_nodes = any(name.startswith(("@node", "@count")) for name in variables)
    node = sum(part.cost for part in of_node)
    mixed = rest_cost if of_nodes else 0.0
    pod = sum(part.cost for part in of_pod) + (0.0 if of_nodes else rest_cost)
    pod += len(tree.counts) * (_COUNT + _COUNTED * NODES)
    weighed = [(NODES * mixed, rest, found.rest, "what joins Pod and node")]
    weighed += [(NODES * RENEWED_SHARE * part.cost, part.walk, part.expr, "what reads the node") for part in of_node]
    weighed += [(part.cost, part.walk, part.expr, "what reads the Pod") for part in of_pod]
    _, walk, expr, kind = max(weighed, key=lambda entry: entry[0])
    at = fault_at(unpack(compiled), walk.heaviest_in(expr), "")
    return Cost(pod, mixed, node, at.line, at.column, kind)


def estimate_of_victims(compiled: bytes, params: Mapping[str, object], objects: Mapping[str, Bound] = ROOTS) -> Cost:
    """Estimate what the expression of a victims rule costs in a preemption: it is evaluated anew for each Pod.

    Args:
        compiled: the expression.
        params: the constants of its rule set.
        objects: known bounds of the victim, the Pod and the node that replace the assumed ones.
    """
    tree = Tree(compiled)
    walk = _Walk({**ROOTS, **objects, "params": of_value(params)})
    expr = unpack(tree.serialized).expr
    steps, _ = walk.walk(expr)
    reads = [_at(walk.named[name], path) for name, paths in tree.reads.items() for path in paths]
    cost = VICTIMS * (_EVALUATION + steps + sum(map(_handing_over, reads)))
    at = fault_at(unpack(compiled), walk.heaviest_in(expr), "")
    return Cost(cost, 0, 0, at.line, at.column, "what reads the victim", OF_PREEMPTION)


class _Weighed:
    """The cost of one evaluation of a part: to start, to pass the variables it reads, and to evaluate its tree."""

    def __init__(self, part: Subexpression, roots: Mapping[str, Bound]) -> None:
        self.variable = part.variable
        self.expr = unpack(part.serialized).expr
        self.walk = _Walk(roots)
        steps, self.bound = self.walk.walk(self.expr)
        reads = [_at(roots[name], path) for name, paths in part.reads.items() for path in paths]
        self.values = sum(bound.values for bound in reads)
        self.cost = _EVALUATION + steps + sum(map(_handing_over, reads))


def _rest_cost(expr: syntax_pb2.Expr, walk: "_Walk") -> float:
    """Return the cost of the rest for one node: operators over columns where it has nothing else, else CEL."""
    steps, _ = walk.walk(expr)
    if expr.WhichOneof("expr_kind") in _LEAVES:
        return 0.0
    handed = sum(_handing_over(walk.named.get(name, SCALAR)) for name in _variables(expr))
    evaluated = _EVALUATION + steps + handed
    operators = 0 if walk.joins_texts else _operators(expr)
    return _VECTOR * operators if operators and evaluated <= _LEFT_TO_CEL else evaluated


def _variables(expr: syntax_pb2.Expr) -> set[str]:
    """Return the parts and counts that an expression reads."""
    name = expr.ident_expr.name
    own = {name} if name.startswith(("@node", "@pod", "@count")) else set()
    return own.union(*map(_variables, children(expr)))


def _operators(expr: syntax_pb2.Expr) -> int:
    """Return how many operators over columns an expression consists of; 0 when there is anything else in it."""
    kind = expr.WhichOneof("expr_kind")
    if kind in _LEAVES:
        return 1
    own = 1
    if kind == "call_expr" and expr.call_expr.function == "@in":
        own = _IN_LIST if _holds_members(expr.call_expr.args[1]) else 0
    elif kind != "list_expr" and (kind != "call_expr" or expr.call_expr.function not in OPERATORS):
        own = 0
    inner = [_operators(child) for child in children(expr)]
    return own + sum(inner) if own and all(inner) else 0


def _holds_members(expr: syntax_pb2.Expr) -> bool:
    """Return whether an expression is a list or a map that is the same for all nodes, or a list literal."""
    return expr.WhichOneof("expr_kind") == "list_expr" or str(expr.ident_expr.name).startswith("@pod")


def _at(bound: Bound, path: Path) -> Bound:
    for name in path:
        bound = bound.member(name)
    return bound


def _handing_over(bound: Bound) -> float:
    return _VARIABLE + _VALUE * bound.values + _CHARACTER * bound.characters


# Microseconds, and the bound of the result.
_Priced = tuple[float, Bound]


_LEAVES = frozenset({"ident_expr", "const_expr"})


class _Walk:
    """Walks a tree: computes for each sub-expression its price and the bound of its value.

    Attributes:
        named: the bounds of the values of names.
        joins_texts: whether a + joins texts or lists somewhere: this doesn't run over columns.
    """

    def __init__(self, named: Mapping[str, Bound]) -> None:
        self.named = dict(named)
        self.joins_texts = False
        self._prices: dict[int, float] = {}

    def walk(self, expr: syntax_pb2.Expr) -> _Priced:
        """Return microseconds for one evaluation, and the bound of the value."""
        price, bound = self._priced(expr)
        self._prices[expr.id] = price
        return price, bound

    def heaviest_in(self, expr: syntax_pb2.Expr) -> syntax_pb2.Expr:
        """Return the outermost loop, or else the innermost call, that takes at least half of the price."""
        half = self._prices[expr.id] / 2
        while expr.WhichOneof("expr_kind") != "comprehension_expr":
            calls = [child for child in children(expr) if child.WhichOneof("expr_kind") not in _LEAVES]
            heaviest = max(calls, key=self._price_of, default=None)
            if heaviest is None or self._price_of(heaviest) < half:
                break
            expr = heaviest
        return expr

    def _price_of(self, expr: syntax_pb2.Expr) -> float:
        return self._prices[expr.id]

    def _priced(self, expr: syntax_pb2.Expr) -> _Priced:
        match expr.WhichOneof("expr_kind"):
            case "const_expr":
                text = constant_string(expr)
                is_bytes = expr.const_expr.WhichOneof("constant_kind") == "bytes_value"
                unread = Bound(length=len(expr.const_expr.bytes_value)) if is_bytes else SCALAR
                return _STEP, unread if text is None else of_value(text)
            case "ident_expr":
                return _STEP, self.named.get(expr.ident_expr.name, SCALAR)
            case "select_expr":
                price, operand = self.walk(expr.select_expr.operand)
                field = expr.select_expr.field
                return price + _STEP, SCALAR if expr.select_expr.test_only else operand.member(field)
            case "comprehension_expr":
                return self._comprehension(expr)
            case "call_expr":
                return self._call(expr)
        return self._collection(expr)

    def _collection(self, expr: syntax_pb2.Expr) -> _Priced:
        """Price a literal list, map or message."""
        inner = [self.walk(child) for child in children(expr)]
        element = joined([bound for _, bound in inner])
        price = sum(price for price, _ in inner) + _STEP * (1 + len(inner))
        if expr.WhichOneof("expr_kind") == "list_expr":
            return price, Bound(len(inner), element=element)
        if expr.struct_expr.message_name:
            return price, element or SCALAR  # for CEL its value is the value inside
        longest = max((bound.length for _, bound in inner), default=0)
        entries = len(expr.struct_expr.entries)
        return price, Bound(entries, element=element, is_map=True, key_length=max(longest, KEY_LENGTH))

    def _comprehension(self, expr: syntax_pb2.Expr) -> _Priced:
        loop = expr.comprehension_expr
        range_price, over = self.walk(loop.iter_range)
        outer = dict(self.named)
        first, second = (over.key, over.inside) if over.is_map or over.types else (over.inside, over.inside)
        self.named |= {loop.iter_var: first, loop.iter_var2: second}
        init_price, accumulated = self.walk(loop.accu_init)
        gathers = loop.accu_init.WhichOneof("expr_kind") == "list_expr"
        # Each iteration copies the elements gathered so far, on average half of them.
        self.named[loop.accu_var] = Bound(max(over.rounds // 2, 1)) if gathers else accumulated
        condition_price, _ = self.walk(loop.loop_condition)
        step_price, step = self.walk(loop.loop_step)
        self.named[loop.accu_var] = Bound(over.rounds, element=step.each) if gathers else accumulated.joined(step)
        result_price, result = self.walk(loop.result)
        self.named = outer
        rounds = over.rounds * (_ITERATION + condition_price + step_price)
        return range_price + init_price + rounds + result_price, result

    def _call(self, expr: syntax_pb2.Expr) -> _Priced:
        call = expr.call_expr
        inner = [self.walk(child) for child in children(expr)]
        bounds = [bound for _, bound in inner]
        if call.function == "_?_:_":
            (condition, _), (then, first), (otherwise, second) = inner
            return _STEP + condition + max(then, otherwise), first.joined(second)
        own, bound = _called(call, bounds)
        self.joins_texts = self.joins_texts or (call.function == "_+_" and bound is not SCALAR)
        return _STEP + own + sum(price for price, _ in inner), bound


def _called(call: syntax_pb2.Expr.Call, bounds: list[Bound]) -> _Priced:
    """Price a call without its arguments, and return the bound of its result. `bounds` are the target's and the arguments'."""
    function = call.function
    if function in _CHAINS:
        key = constant_string(call.args[1])
        return 0.0, bounds[0].inside if key is None else bounds[0].member(key)
    if function in _SAME_CALLS:
        return 0.0, joined(bounds) or ANYTHING
    if function in _ELEMENT_CALLS:
        return _COPY, bounds[0].inside
    if function == "_+_":
        return _added(bounds[0], bounds[1])
    if function == "@in":
        wanted, within = bounds
        return _STEP * (2 if within.is_map else within.size * _smaller(wanted, within.inside).values), SCALAR
    if function in {"_==_", "_!=_"}:
        smaller = _smaller(*bounds)
        return _STEP * smaller.values + _CHARACTER * smaller.characters, SCALAR
    if function == "matches":
        literals = bounds[1].literals
        costs = [UNKNOWN] if literals is None else [cost_of(text) for text in literals]
        return max(cost.microseconds(bounds[0].length) for cost in costs), SCALAR
    return (0.0, SCALAR) if function in _STEPS else _of_function(function, bounds)


def _smaller(left: Bound, right: Bound) -> Bound:
    """Return the bound of fewer values: a comparison of lists, maps and objects compares what is in them, as far as both go."""
    return min(left, right, key=lambda bound: bound.values)


def _added(left: Bound, right: Bound) -> _Priced:
    if left is SCALAR or right is SCALAR:
        return 0.0, SCALAR
    length, count = left.length + right.length, left.size + right.size
    element = joined([bound for bound in (left.each, right.each) if bound is not None]) if count else None
    return _CHARACTER * length + _COPY * count, Bound(count, length, element=element)


def _of_function(function: str, bounds: list[Bound]) -> _Priced:
    """Price a function that may read a text, and return the bound of its result."""
    if function.startswith(CLOCK):
        return _OTHER_CALL + _PYTHON_CALL * (len(bounds) - 1), SCALAR
    if function in _QUANTITY_CALLS:
        return _PYTHON_CALL + _READ_IN_PYTHON * sum(bound.length for bound in bounds), _QUANTITY_CALLS[function]
    if function in _QUOTING_CALLS:
        return _OTHER_CALL + _EACH_PIECE * bounds[0].length, Bound(length=2 * bounds[0].length + 2)
    length = bounds[0].length
    compared = _compared(length, bounds[1].length) if function in _SEARCHING_CALLS else 0.0
    if function not in _PIECE_CALLS:
        kept = Bound(length=max(length, NUMBER_LENGTH)) if function in _KEPT_CALLS else SCALAR
        is_ours = function == "substring" and len(bounds) == 1 + BOTH_ENDS  # the first is the text
        price = _PYTHON_CALL if is_ours else _OTHER_CALL
        return price + max(_EACH_CHARACTER * sum(bound.length for bound in bounds), compared), kept
    if function == "split":
        return max(_EACH_PIECE * (length + 1), compared), Bound(length + 1, element=Bound(length=length))
    if function == "replace":
        # Where the replaced text is empty, the replacement is put between all characters, which stay.
        stay = length if "" in (bounds[1].literals or {""}) else 0
        longest = length * max(bounds[2].length, 1) + bounds[2].length + stay
        return max(_EACH_PIECE * (length + 1), compared) + _CHARACTER * longest, Bound(length=longest)
    if function == "format":
        return _formatted(bounds)
    # join puts a text between each two elements.
    characters = bounds[0].characters + bounds[0].size * sum(bound.length for bound in bounds[1:])
    return _EACH_PIECE * (characters + 1), Bound(length=characters)


def _compared(length: int, wanted: int) -> float:
    """Price the search for a text that is at most as long as wanted: it takes longest where it is half as long as what is searched."""
    wanted = min(wanted, length // 2)
    return _COMPARED * (length - wanted) * wanted


def _formatted(bounds: list[Bound]) -> _Priced:
    """Price a format, and return the bound of the resulting text."""
    template, arguments = bounds[0], bounds[-1]
    if written := _written(arguments):
        longest = max(_CHARACTERS_WRITTEN, arguments.longest)
        return _WRITTEN * written + _CHARACTER * longest * written, Bound(length=template.length + longest * written)
    # A text as hexadecimal digits, or a number with as many digits as the template says.
    texts = template.literals
    digits = NUMBER_LENGTH if texts is not None and not any(map(_WIDE.search, texts)) else _DIGITS_WRITTEN
    read = template.length + arguments.characters
    made = read + arguments.characters + arguments.size * digits
    return _EACH_PIECE * (read + 1) + _CHARACTER * made, Bound(length=made)


def _written(arguments: Bound) -> int:
    """Return how many values are in the objects, lists and maps that a format writes; 0 where there are none."""
    inside = arguments.inside.values
    return arguments.size * inside if inside > 1 else 0
