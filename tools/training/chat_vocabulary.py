"""Learns the chat model's vocabulary, which splits a word alike with and without a space before it.

Ordinary byte-pair merges make " plant" and "plant" different pieces, so a model must spell, not copy, a word at the
start of a line that it read inside a sentence. Here, a space may join only a whole first piece, after all other merges
(merges are applied in their order), so the two differ only in the first token. Source of the rest: Sennrich et al.
2016, byte-pair encoding.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Mapping

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>", "<|system|>")
SPLIT = r"\n[ \t]*| ?\p{L}+| ?\d| ?[^\s\p{L}\d]+|\s+"
"""Units that no merge crosses: a newline with its indentation, a word, one digit, a run of punctuation."""
SPACE = "\u0120"
"""How byte-level tokenizers write a space."""

Merge = tuple[str, str]


def learn(texts: Iterable[str], syllables: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of `vocabulary` tokens, special ones first. It encodes any text, byte by byte if necessary.

    texts: without invented words. syllables: of the invented words, with a space if they begin a word. They are learned
    first, so that no whole invented word becomes a token.
    """
    words, spaced = _words(texts)
    first, beginnings = _words(syllables)
    spaced |= beginnings
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _merges(first, len(first) * 3, {})
    room = vocabulary - len(SPECIAL_TOKENS) - len(alphabet)
    low, high = len(merges), room
    while low < high:  # the most merges whose pieces fit, with those that begin a word after a space
        middle = (low + high + 1) // 2
        tried = _merges(words, middle, merges)
        low, high = (middle, high) if _size(tried, spaced) <= room else (low, middle - 1)
    merges = _merges(words, low, merges)
    all_merges = [*merges, *((SPACE, piece) for piece in sorted(_starts(merges, spaced)))]
    pieces = dict.fromkeys([*SPECIAL_TOKENS, *alphabet, *(left + right for left, right in all_merges)])
    pieces.update(dict.fromkeys(f"<|unused{number}|>" for number in range(vocabulary - len(pieces))))
    tokenizer = Tokenizer(models.BPE({piece: id_ for id_, piece in enumerate(pieces)}, all_merges))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _words(texts: Iterable[str]) -> tuple[dict[str, int], set[str]]:
    """How often each word occurs, without the space before it, and the words that had one."""
    cut = _pre_tokenizer()
    parts = collections.Counter(part for text in texts for part, _ in cut.pre_tokenize_str(text))
    words: collections.Counter[str] = collections.Counter()
    spaced = set()
    for part, count in parts.items():
        bare = part[1:] if part.startswith(SPACE) and part.strip(SPACE) else part
        words[bare] += count
        if bare != part:
            spaced.add(bare)
    return dict(words), spaced


def _merges(words: Mapping[str, int], count: int, before: Mapping[Merge, None]) -> dict[Merge, None]:
    """`before`, extended by the most frequent pair until there are `count` merges."""
    merges = dict(before)
    cuts = {word: cut(word, merges) for word in words}
    while len(merges) < count:
        pairs: collections.Counter[Merge] = collections.Counter()
        for word, pieces in cuts.items():
            for pair in itertools.pairwise(pieces):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges[best] = None
        cuts = {word: _join(pieces, best) for word, pieces in cuts.items()}
    return merges


def cut(word: str, merges: Iterable[Merge]) -> list[str]:
    """The pieces of a word."""
    pieces = list(word)
    for merge in merges:
        if len(pieces) == 1:
            break
        pieces = _join(pieces, merge)
    return pieces


def _join(pieces: list[str], merge: Merge) -> list[str]:
    joined: list[str] = []
    for piece in pieces:
        if joined and (joined[-1], piece) == merge:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _starts(merges: Mapping[Merge, None], spaced: set[str]) -> set[str]:
    """First pieces of words after a space, and every letter and digit, with which an unknown word may begin."""
    return {cut(word, merges)[0] for word in spaced} | set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    )


def _size(merges: Mapping[Merge, None], spaced: set[str]) -> int:
    return len(merges) + len(_starts(merges, spaced))
