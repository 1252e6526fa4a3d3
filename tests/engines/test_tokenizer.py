"""The tokenizer against `tokenizers` and jinja2 used directly, and with user text that tries to be a control token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError, InvalidField, UnsupportedField
from engines.tokenizer.folder import TokenizerFolder
from engines.tokenizer.off_loop import INLINE_BYTES, OffLoopTokenizer
from engines.tokenizer.segment_cache import LoopAllowance, NeedsThread
from engines.tokenizer.template import ChatTemplate
from engines.tokenizer.text_stream import BytesTextStream, WindowTextStream
from engines.tokenizer.tokenizer import Tokenizer

CONTROLS = ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>", "<|system|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def write_model(folder: Path, added: list[dict[str, Any]], config: dict[str, Any], normalizer: Any = None) -> Path:
    """A byte-level tokenizer without merges and these added tokens after its 256 bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE({character: id_ for id_, character in enumerate(sorted(alphabet))}, [])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    for token in added:
        make = backend.add_special_tokens if token.pop("special", True) else backend.add_tokens
        make([tokenizers.AddedToken(token.pop("content"), **token)])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(
        tmp_path_factory.mktemp("chat"),
        [{"content": text, "normalized": False} for text in CONTROLS],
        {"chat_template": TEMPLATE, "bos_token": {"content": "<|endoftext|>"}, "eos_token": "<|end|>"},
    )


@pytest.fixture(scope="session")
def chat(chat_folder: Path) -> Tokenizer:
    return Tokenizer.load(chat_folder)


@pytest.fixture(scope="session")
def raw(chat_folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(chat_folder / "tokenizer.json"))


user_text = st.lists(
    st.one_of(st.text(max_size=6), st.sampled_from([*CONTROLS, "<|", "|>", "<", ">", "<|e", "nd|>", "user|>"])),
    max_size=6,
).map("".join)
message = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": user_text})


@given(text=user_text)
def test_text_keeps_its_characters_and_makes_no_control_token(chat: Tokenizer, text: str) -> None:
    ids = chat.encode(text)
    assert chat.control_ids.isdisjoint(ids)
    assert chat.decode(ids) == text
    assert chat.count(text) == len(ids)


@given(messages=st.lists(message, min_size=1, max_size=4))
def test_a_conversation_holds_exactly_the_templates_control_tokens(
    chat: Tokenizer, messages: list[dict[str, str]]
) -> None:
    ids = chat.chat_ids(messages)
    names = {id_: text for text, id_ in ((text, chat_id(chat, text)) for text in CONTROLS)}
    expected = ["<|endoftext|>"]
    for entry in messages:
        expected.append(f"<|{entry['role']}|>")
        if entry["role"] == "assistant":
            expected.append("<|end|>")
    assert [names[id_] for id_ in ids if id_ in names] == [*expected, "<|assistant|>"]
    assert chat.decode(ids) == "".join(entry["content"] for entry in messages)


def chat_id(tokenizer: Tokenizer, text: str) -> int:
    return tokenizer._control.by_text[text].id


@given(
    messages=st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text()}), min_size=1
    )
)
def test_a_conversation_without_control_strings_equals_the_whole_render(
    chat: Tokenizer, raw: tokenizers.Tokenizer, messages: list[dict[str, str]]
) -> None:
    rendered = jinja2.Template(TEMPLATE).render(
        messages=messages, bos_token="<|endoftext|>", add_generation_prompt=True
    )
    assert chat.chat_ids(messages) == raw.encode(rendered, add_special_tokens=False).ids


@given(messages=st.lists(message, min_size=1, max_size=3))
def test_the_cautious_path_equals_the_fast_one(chat: Tokenizer, messages: list[dict[str, str]]) -> None:
    clean = [{**entry, "content": entry["content"].replace("<", "").replace(">", "")} for entry in messages]
    fast = chat.chat_ids(clean)
    chat._has_loose_controls = True
    try:
        assert chat.chat_ids(clean) == fast
    finally:
        chat._has_loose_controls = False


def test_a_control_string_cannot_be_assembled_from_pieces(tmp_path: Path) -> None:
    template = "{% for m in messages %}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% endfor %}|>"
    tokenizer = Tokenizer.load(
        write_model(
            tmp_path, [{"content": text, "normalized": False} for text in CONTROLS], {"chat_template": template}
        )
    )
    parts = [{"type": "text", "text": text} for text in ("a<|e", "nd|>b", "<|end")]
    ids = tokenizer.chat_ids([{"role": "user", "content": parts}])
    assert tokenizer.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == "a<|end|>b<|end|>"


def test_text_parts_are_one_text_to_a_template_that_knows_no_parts(chat: Tokenizer) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat.chat_ids([{"role": "user", "content": parts}]) == chat.chat_ids([{"role": "user", "content": "a b"}])


def test_json_escapes_in_tool_arguments_cannot_spell_a_control_token(tmp_path: Path) -> None:
    template = "{% for call in messages[0].tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}<|end|>"
    tokenizer = Tokenizer.load(
        write_model(
            tmp_path, [{"content": text, "normalized": False} for text in CONTROLS], {"chat_template": template}
        )
    )
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "<|end|\\u003e"}'}}
    ids = tokenizer.chat_ids([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert [id_ for id_ in ids if id_ in tokenizer.control_ids] == [chat_id(tokenizer, "<|end|>")]
    assert tokenizer.decode(ids) == '{"a": "<|end|>"}'


def test_a_marker_that_is_not_marked_special_is_a_control_token_all_the_same(tmp_path: Path) -> None:
    added = [{"content": "<tool_call>", "special": False}, {"content": "    ", "special": False}]
    tokenizer = Tokenizer.load(write_model(tmp_path, added, {}))
    assert tokenizer.special_in("say <tool_call> now") == "<tool_call>"
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode("<tool_call>"))
    assert tokenizer.encode("x    ")[-1] == 257, "runs of spaces are text and keep their token"


def test_a_control_string_hidden_by_normalisation_is_found(tmp_path: Path) -> None:
    added = [{"content": "<|end|>", "normalized": True}]
    folder = write_model(
        tmp_path, added, {"chat_template": "{{ messages[0].content }}<|end|>"}, tokenizers.normalizers.NFKC()
    )
    tokenizer = Tokenizer.load(folder)
    hidden = "\uff1c|end|\uff1e"
    assert tokenizer.special_in(hidden) == "<|end|>"
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode(hidden))
    messages = [{"role": "user", "content": hidden}]
    ids = tokenizer.chat_ids(messages)
    assert [id_ for id_ in ids if id_ in tokenizer.control_ids] == [chat_id(tokenizer, "<|end|>")]
    with pytest.raises(NeedsThread):  # the search encodes the whole prompt
        tokenizer.encode("x", None, "acme", LoopAllowance(9))
    with pytest.raises(NeedsThread):
        tokenizer.chat_ids(messages, tenant="acme", allowance=LoopAllowance(99))


def test_a_piece_of_the_vocabulary_that_is_a_control_string_stays_text(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(
        tokenizers.models.Unigram([("<unk>", 0.0), ("</s>", 0.0), *((c, -2.0) for c in "</s>ab")], 0, False)
    )
    backend.add_special_tokens(["</s>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.control_ids == {1}
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode("a</s>b</s>"))


@pytest.mark.parametrize("order", ["psm", "spm"])
def test_a_gap_is_laid_out_in_the_models_order(tmp_path: Path, order: str) -> None:
    added = [{"content": text, "normalized": False} for text in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")]
    tokenizer = Tokenizer.load(write_model(tmp_path, added, {"fim_order": order}))
    prefix, suffix, middle = (chat_id(tokenizer, f"<|fim_{name}|>") for name in ("prefix", "suffix", "middle"))
    before, after = [prefix, *tokenizer.encode("if <|fim_middle|>")], [suffix, *tokenizer.encode("else")]
    sides = before + after if order == "psm" else after + before
    assert tokenizer.fill_ids("if <|fim_middle|>", "else") == [*sides, middle]


@pytest.mark.parametrize("order", ["psm", "spm"])
@pytest.mark.parametrize("line", [None, "before_middle", "after_middle"])
@pytest.mark.parametrize("prefix", ["", "def f(", "a\n", "a\nb\n  return <|fim_middle|>"])
def test_the_half_typed_line_stands_where_the_model_learnt_it(
    tmp_path: Path, order: str, line: str | None, prefix: str
) -> None:
    added = [{"content": text, "normalized": False} for text in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")]
    config = {"fim_order": order} | ({} if line is None else {"fim_typed_line": line})
    tokenizer = Tokenizer.load(write_model(tmp_path, added, config))
    ids = tokenizer.fill_ids(prefix, "else")
    middle = ids.index(chat_id(tokenizer, "<|fim_middle|>"))
    typed = prefix[prefix.rfind("\n") + 1 :] if line == "after_middle" else ""
    assert tokenizer.decode(ids[middle + 1 :]) == typed
    above = prefix.removesuffix(typed)
    assert tokenizer.decode(ids[:middle]) == (above + "else" if order == "psm" else "else" + above)
    assert sum(id_ in tokenizer.control_ids for id_ in ids) == 3, "only the template's own"


def test_the_shipped_models_encode_as_they_were_trained() -> None:
    models = Path(__file__).parents[2] / "models"
    code = Tokenizer.load(models / "slipstream-code")
    prefix, suffix, middle = (chat_id(code, f"<|fim_{name}|>") for name in ("prefix", "suffix", "middle"))
    assert code.fill_ids("a = 1\ndef f(", "pass") == [
        *(suffix, *code.encode("pass")), *(prefix, *code.encode("a = 1\n")), *(middle, *code.encode("def f(")),
    ]  # fmt: skip
    assert code.fill_ids("a = 1\n", "pass")[-1] == middle, "nothing is typed"
    chat = Tokenizer.load(models / "slipstream-chat")
    begin, user, assistant, end = (chat_id(chat, f"<|{name}|>") for name in ("endoftext", "user", "assistant", "end"))
    assert chat.chat_ids([{"role": "user", "content": "hi"}]) == [begin, user, *chat.encode("hi"), assistant]
    assert chat.end_ids == {end, begin}


ROLES = st.sampled_from(["system", "user", "assistant"])
SAID = st.lists(st.fixed_dictionaries({"role": ROLES, "content": st.text()}), min_size=1, max_size=5)


@given(messages=SAID)
def test_the_shipped_template_spells_conversations_without_tools_as_in_training(
    messages: list[dict[str, str]],
) -> None:
    template = TokenizerFolder.read(Path(__file__).parents[2] / "models/slipstream-chat").chat_template
    assert template is not None
    said = [f"<|{one['role']}|>{one['content']}{'<|end|>' * (one['role'] == 'assistant')}" for one in messages]
    rendered = ChatTemplate(template, {}, "").render(messages, None)
    assert rendered == f"<|endoftext|>{''.join(said)}<|assistant|>"


def test_the_shipped_template_shows_tools_calls_and_results() -> None:
    call = {"function": {"name": "clock", "arguments": {"zone": "UTC"}}}
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "noon"},
    ]
    template = TokenizerFolder.read(Path(__file__).parents[2] / "models/slipstream-chat").chat_template
    assert template is not None
    rendered = ChatTemplate(template, {}, "").render(said, [{"type": "function", "function": {"name": "clock"}}])
    assert rendered == (
        '<|endoftext|><|system|>Be short.\nTools:\n{"name": "clock"}\nTo call one: <tool_call>\n'
        '{"name": its name, "arguments": {its arguments}}\n</tool_call><|user|>What time is it?'
        "<|assistant|><tool_call>\n"
        '{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call><|end|>'
        "<|user|><tool_response>\nnoon\n</tool_response><|assistant|>"
    )


def test_codestral_has_no_middle_token(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_model(tmp_path, [{"content": "[PREFIX]"}, {"content": "[SUFFIX]"}], {}))
    expected = [
        chat_id(tokenizer, "[SUFFIX]"),
        *tokenizer.encode("s"),
        chat_id(tokenizer, "[PREFIX]"),
        *tokenizer.encode("p"),
    ]
    assert tokenizer.fill_ids("p", "s") == expected


def test_a_model_that_cannot_fill_or_chat_says_so(chat: Tokenizer, tmp_path: Path) -> None:
    assert chat.fill is None
    with pytest.raises(UnsupportedField, match="suffix"):
        chat.fill_ids("a", "b")
    code = Tokenizer.load(write_model(tmp_path, [], {}))
    assert not code.has_chat_template
    with pytest.raises(UnsupportedField, match="chat template"):
        code.chat_ids([{"role": "user", "content": "hi"}])


def test_a_template_that_refuses_blames_the_messages(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(
        write_model(tmp_path, [], {"chat_template": "{{ raise_exception('roles must alternate') }}"})
    )
    with pytest.raises(InvalidField, match="roles must alternate") as caught:
        tokenizer.chat_ids([{"role": "user", "content": "hi"}])
    assert caught.value.param == "messages"


CONTENT = {
    "concatenates": "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ';' }}{% endfor %}",
    "prints": "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}",
    "trims": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }};{% endfor %}",
    "asks for a kind": "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ '[' + part.type + ']' + (part.text or '') }}{% endfor %}{% endif %};{% endfor %}",
}
"""Ways in which models' templates treat what was said."""
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize("way", CONTENT)
def test_a_message_without_content_says_nothing(tmp_path: Path, way: str) -> None:
    """As SGLang and vLLM have it: an assistant that only called, or refused."""
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": CONTENT[way]}))
    for silent in ({"role": "assistant"}, dict[str, Any](role="assistant", content=None)):
        asked: list[dict[str, Any]] = [{"role": "user", "content": "a"}, silent, {"role": "user", "content": "b"}]
        assert tokenizer.decode(tokenizer.chat_ids(asked)) == "user: a;assistant: ;user: b;"


@pytest.mark.parametrize("way", CONTENT)
def test_an_image_goes_only_where_the_template_has_a_place_for_it(tmp_path: Path, way: str) -> None:
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": CONTENT[way]}))
    parts: Any = [{"type": "text", "text": "b"}, IMAGE]
    asked: list[dict[str, Any]] = [{"role": "user", "content": "a"}, {"role": "user", "content": parts}]
    if way == "asks for a kind":
        assert tokenizer.decode(tokenizer.chat_ids(asked)) == "user: a;user: [text]b[image_url];"
        return
    with pytest.raises(
        UnsupportedField, match=r"reads text only, and messages\[1\]\.content\[1\] is an image"
    ) as caught:
        tokenizer.chat_ids(asked)
    assert caught.value.param == "messages[1].content[1]"


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (CONTENT["prints"], True),
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", False),
        ("{{ raise_exception('tools are not for this model') }}", True),
    ],
)
def test_a_template_that_leaves_out_what_tools_answered_is_known(tmp_path: Path, template: str, shown: bool) -> None:
    assert Tokenizer.load(write_model(tmp_path, [], {"chat_template": template})).shows_tool_results is shown


def test_a_template_that_fails_says_nothing_of_its_insides(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": "{{ messages[0].name + 1 }}"}))
    with pytest.raises(InvalidField) as caught:
        tokenizer.chat_ids([{"role": "user", "content": "hi"}])
    assert caught.value.message.startswith("This model's chat template fails on these messages")
    assert "object" not in caught.value.message


def test_a_template_cannot_reach_the_process(tmp_path: Path) -> None:
    template = "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}"
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": template}))
    with pytest.raises(InvalidField, match="template fails on"):
        tokenizer.chat_ids([{"role": "user", "content": "hi"}])


def test_half_a_surrogate_pair_is_the_clients_mistake(chat: Tokenizer) -> None:
    with pytest.raises(InvalidField, match="surrogate"):
        chat.encode("ab\ud800")


def test_the_begin_of_text_token_is_added_where_the_model_adds_it(tmp_path: Path) -> None:
    folder = write_model(tmp_path, [{"content": "<s>", "normalized": False}], {})
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    backend.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("hi")[0] == 256
    assert tokenizer.encode("hi") == backend.encode("hi").ids
    assert tokenizer.count("") == 1


@given(text=st.text())
def test_streamed_text_is_the_text(chat: Tokenizer, text: str) -> None:
    stream = chat.text_stream()
    assert "".join(map(stream.step, chat.encode(text))) + stream.flush() == text


@given(ids=st.lists(st.integers(0, 260), max_size=40))
def test_streamed_bytes_decode_as_they_do_at_once(chat: Tokenizer, ids: list[int]) -> None:
    stream = chat.text_stream()
    streamed, whole = "".join(map(stream.step, ids)) + stream.flush(), chat.decode(ids)
    assert streamed == whole or f"{streamed}\ufffd" == whole  # an unfinished character at the end is left out


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary with byte fallback and word-start marks, as Llama 2 has."""
    folder = tmp_path_factory.mktemp("pieces")
    words = ["▁the", "▁cat", "▁", "a", "b", "▁a"]
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {
        word: 256 + index for index, word in enumerate(words)
    }
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], byte_fallback=True, unk_token="<0x00>"))
    decoders = tokenizers.decoders
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


@given(
    pieces=st.lists(
        st.one_of(
            st.integers(256, 261).map(lambda id_: [id_]),
            st.characters(min_codepoint=1, exclude_categories=["Cs"], exclude_characters="\ufffd").map(
                lambda c: list(c.encode())
            ),
        ),
        max_size=20,
    )
)
def test_streamed_pieces_keep_spaces_and_characters(sentencepiece: Tokenizer, pieces: list[list[int]]) -> None:
    ids = [id_ for piece in pieces for id_ in piece]
    stream = sentencepiece.text_stream()
    assert "".join(map(stream.step, ids)) + stream.flush() == sentencepiece.decode(ids)


@pytest.mark.parametrize("continued", ["▁cat ▁a b", "▁ ▁ ▁the", "a ▁ ▁cat", "<0xE2> <0x82> <0xAC> ▁a"])
@pytest.mark.parametrize("prompt", ["a", "▁the <0x0A>", "▁the ▁", "<0xE2> <0x82> <0xAC>"])
def test_a_text_that_continues_a_prompt_keeps_its_first_space(
    sentencepiece: Tokenizer, prompt: str, continued: str
) -> None:
    """Fault: the first space of a completion was lost, and with it one of an indentation's."""
    before, ids = ([sentencepiece._parsing.token_to_id(name) for name in each.split()] for each in (prompt, continued))
    whole = sentencepiece.decode([*before, *ids])[len(sentencepiece.decode(before)) :]
    stream = sentencepiece.text_stream()
    stream.follow(before)
    assert "".join(map(stream.step, ids)) + stream.flush() == whole
    assert b"".join(map(sentencepiece.token_bytes, ids)).decode() == whole


def test_a_token_is_named_alone_in_a_vocabulary_without_letters(tmp_path: Path) -> None:
    """Fault: each name in log probabilities began with the token for unknown text."""
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "ж": 1}, unk_token="<unk>"))
    backend.add_special_tokens(["<unk>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.load(tmp_path).token_text(1).strip() == "ж"


def test_a_prompt_without_an_end_in_text_costs_few_decoded_ids() -> None:
    """Fault: with 64 half characters, each of a request's choices held the engine's thread for 3 ms."""
    decoded: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return "\ufffd" * len(ids)

    WindowTextStream(decode).follow([0xE2] * 1_000)
    assert sum(decoded) < 200


@given(ids=st.lists(st.integers(0, 255), max_size=60))
def test_garbage_bytes_are_not_held_for_ever(sentencepiece: Tokenizer, ids: list[int]) -> None:
    stream = sentencepiece.text_stream()
    silent = 0
    for id_ in ids:
        silent = 0 if stream.step(id_) else silent + 1
        assert silent < 8
    stream.flush()


PANICS = json.dumps(
    {
        "model": {
            "type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3},
            "merges": [["a", "b"], ["ab", "a"], ["aba", "b"], ["b", "aba"]],
        }
    }
)  # fmt: skip
"""The library's Rust code panics on it, which is no `Exception` in Python."""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "file not found"),
        ("tokenizer.json", "{", "not valid JSON"),
        ("tokenizer.json", "[]", "must hold a JSON object"),
        ("tokenizer.json", "{}", "not a tokenizer"),
        ("tokenizer.json", PANICS, "tokenizer.json: not a tokenizer: range end index"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "the vocabulary is empty"),
        ("tokenizer.json", '{"added_tokens": [{"id": 1, "content": ""}]}', "added_tokens holds a token without a text"),
        ("tokenizer_config.json", "{", "not valid JSON"),
        ("tokenizer_config.json", '{"fim_order": "mps"}', "fim_order must be psm or spm; got 'mps'"),
        ("tokenizer_config.json", '{"fim_typed_line": "x"}', "must be before_middle or after_middle; got 'x'"),
        ("tokenizer_config.json", '{"fim_min_confidence": 1}', "must be a number from 0 to below 1; got 1"),
        ("tokenizer_config.json", '{"fim_min_confidence": true}', "must be a number from 0 to below 1; got True"),
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "chat_template does not parse, line 1"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template must be"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id must be"),
    ],
)
def test_a_broken_folder_stops_the_start(
    chat_folder: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = shutil.copytree(chat_folder, tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(ConfigError) as caught:
        Tokenizer.load(folder)
    assert message in caught.value.message
    assert str(folder) in caught.value.message


def test_generation_ends_at_every_end_token_the_folder_names(chat_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(chat_folder, tmp_path / "model")
    (folder / "generation_config.json").write_text('{"eos_token_id": [256, 7]}')
    assert Tokenizer.load(folder).end_ids == {256, 7, 259}


async def test_long_text_leaves_the_event_loop_and_gives_the_same_ids(chat: Tokenizer) -> None:
    off_loop = OffLoopTokenizer(chat)
    try:
        for text in ("short", "long " * INLINE_BYTES):
            assert await off_loop.encode(text) == chat.encode(text)
            messages = [{"role": "user", "content": text}]
            assert await off_loop.chat_ids(messages) == chat.chat_ids(messages)
        with pytest.raises(UnsupportedField):
            await off_loop.fill_ids("p" * INLINE_BYTES, "s")
    finally:
        off_loop.close()


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_an_unfinished_character_is_left_out_at_the_end(cut: int) -> None:
    """A client appends the answer to its next prompt, where U+FFFD would be a character that no model wrote."""
    encoded = "😀".encode()
    stream = BytesTextStream({byte: bytes([byte]) for byte in range(256)})

    shown = "".join(map(stream.step, b"a" + encoded[:cut]))

    assert shown + stream.flush() == "a"
    assert "".join(map(stream.step, b"b")) + stream.flush() == "b"


def test_a_window_leaves_an_unfinished_character_out_too() -> None:
    stream = WindowTextStream(lambda ids: bytes(ids).decode("utf-8", "replace"))

    shown = "".join(map(stream.step, "é€".encode()[:-1]))

    assert shown + stream.flush() == "é"
