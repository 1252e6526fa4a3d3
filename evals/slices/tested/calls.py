"""What the functions of the tested modules are called with: by module and function, arguments of each call.

Apart from the modules, so that no model sees a test of the function that it completes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Calls = Mapping[str, Sequence[tuple[Any, ...]]]

_SPANS: Sequence[list[tuple[int, int]]] = ([], [(1, 3)], [(5, 9), (1, 3)], [(1, 4), (2, 8), (12, 12)], [(1, 2), (3, 4)])
_PAIRS = (((1, 5), (3, 9)), ((1, 5), (6, 9)), ((4, 4), (4, 4)), ((1, 9), (3, 5)), ((7, 9), (1, 7)))
_GRAPHS: Sequence[dict[str, list[str]]] = (
    {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []},
    {"x": ["y"], "y": [], "p": ["q"], "q": ["r"], "r": []},
    {"a": ["b"], "b": ["c"], "c": ["a"], "lone": []},
)
_ROWS: Sequence[list[list[str]]] = (
    [],
    [["name", "size"], ["alpha", "12"], ["be", "7"]],
    [["a"], ["b", "long", "c"], ["", "x"]],
)
_SALES = [["pear", "3", "x"], ["apple", "10", "y"], ["pear", "4", "x"], ["fig", "3", "z"]]
_NAMES = ("", "parse_line", "parseLine", "HTTPServer", "already-there ok", "x", "__twice__over", "A1b2C3")
_TEXTS = ("", "one", "the quick brown fox jumps over it", "a  extraordinarily\nlong b")

CALLS: Mapping[str, Calls] = {
    "intervals": {
        "overlap": _PAIRS,
        "merged": [(spans,) for spans in _SPANS],
        "gaps": [(spans, 0, 10) for spans in _SPANS] + [([(0, 2), (9, 20)], 1, 12), ([(3, 4), (-5, -1)], 3, 4)],
        "covered": [(spans,) for spans in _SPANS],
        "without": _PAIRS,
        "busiest": [(spans,) for spans in _SPANS] + [([(1, 9), (4, 6), (5, 5)],), ([(-3, 0), (0, 2)],)],
    },
    "units": {
        "parse_duration": [("1h30m",), ("45s",), ("2d",), ("",), ("5",), ("3x",), ("1m 2s",)],
        "format_duration": [(0,), (59,), (3_600,), (90_061,), (-5,), (172_800,)],
        "format_size": [(0,), (1_023,), (1_024,), (1_536,), (5_000_000,), (3 * 2**40,), (2**52,)],
        "parse_size": [("12",), ("2.5 MiB",), ("1 KiB",), ("7 XB",), (" 3 B ",)],
        "to_roman": [(1,), (4,), (9,), (14,), (40,), (90,), (399,), (1_994,), (2_026,)],
        "from_roman": [("I",), ("IV",), ("IX",), ("XLII",), ("XC",), ("CDXLIV",), ("MCMXCIV",), ("Q",)],
        "minutes_of": [("0:00",), ("9:05 pm",), ("21:05",), ("12:30 am",), ("12:30 PM",), ("13:00 pm",), ("24:00",)],
    },
    "graphs": {
        "reachable": [(graph, min(graph)) for graph in _GRAPHS] + [({}, "z")],
        "shortest_path": [(graph, min(graph), max(graph)) for graph in _GRAPHS] + [(_GRAPHS[0], "a", "a")],
        "in_order": [(graph,) for graph in _GRAPHS] + [({},)],
        "reversed_edges": [(graph,) for graph in _GRAPHS] + [({"a": ["z"]},)],
        "components": [(graph,) for graph in _GRAPHS] + [({},)],
        "cheapest": [
            ({"a": {"b": 7, "c": 2}, "c": {"b": 3, "d": 8}, "b": {"d": 1}}, "a"),
            ({"a": {"a": 1}}, "a"),
            ({"a": {"b": 1}, "c": {"d": 1}}, "a"),
        ],
    },
    "tables": {
        "parse_line": [("",), ("a,b,c",), ('"a,b",c',), ('say ""hi"",x',), ('"one ""two""",',), ("a;b", ";")],
        "write_line": [(["a", "b"],), (["a,b", 'c"d'],), ([],), ([""],), (["a;b", "c"], ";")],
        "widths": [(rows,) for rows in _ROWS],
        "aligned": [(rows,) for rows in _ROWS],
        "transposed": [(rows,) for rows in _ROWS],
        "totals": [(_SALES, 0, 1), (_SALES, 2, 1), ([], 0, 1)],
        "ranked": [(_SALES, 1), ([["5"], ["-1"], ["9"]], 0), ([], 0)],
    },
    "checks": {
        "luhn_digit": [("7992739871",), ("0",), ("453201511283036",), ("9",), ("55",)],
        "is_luhn": [("79927398713",), ("7992 7398 714",), ("0",), ("",), ("12a4",), ("4532015112830366",)],
        "is_isbn": [("978-3-16-148410-0",), ("9783161484101",), ("978316148410",), ("978-0-306-40615-7",), ("x" * 13,)],
        "old_isbn_digit": [("030640615",), ("097522980",), ("000000000",), ("123456789",), ("080442957",)],
        "is_iban": [
            ("DE89 3704 0044 0532 0130 00",), ("GB82WEST12345698765432",), ("GB82WEST12345698765431",), ("DE89",),
        ],
        "address_number": [
            ("0.0.0.1",), ("10.1.2.3",), ("255.255.255.255",), ("1.2.3",), ("1.2.3.256",), ("01.2.3.4",), ("a.b.c.d",),
        ],
        "in_network": [
            ("10.9.8.7", "10.0.0.0/8"), ("11.0.0.1", "10.0.0.0/8"), ("1.2.3.4", "1.2.3.4/32"), ("1.1.1.1", "0.0.0.0/0"),
            ("1.2.3.4", "1.2.3.5/31"),
        ],
    },
    "texts": {
        "words_of": [(name,) for name in _NAMES],
        "camel_case": [(name,) for name in _NAMES],
        "wrapped": [(text, width) for text in _TEXTS for width in (1, 9, 40)],
        "dedented": [("",), ("  a\n    b\n\n  c",), ("a\n b",), ("   \n  x",)],
        "matches": [
            ("*.py", "a.py"), ("*.py", "a.pyc"), ("a?c", "abc"), ("a?c", "ac"), ("*a*b*", "xxaxxbx"), ("", ""),
            ("*", ""), ("?", ""), ("ab*ab", "abcab"), ("ab*ab", "ab"), ("abc", "abd"),
        ],
        "runs": [("",), ("a",), ("aabccc",), ("  x",)],
        "common_prefix": [([],), (["flower", "flow", "flight"],), (["a", "b"],), (["same", "same"],), (["x", ""],)],
        "longest_common": [("", "a"), ("abcde", "xbcdy"), ("aaa", "aa"), ("abab", "baba"), ("no", "yes")],
    },
}  # fmt: skip
