"""Writes tokenizer_vectors.json: ids that Python's tokenizers (Oniguruma regular expressions) gives for awkward texts.

The trainer uses the same library with another regular-expression engine; trainer/tests/data_tokenizer.rs compares the ids.
Needs `pip install tokenizers`. Run from anywhere: python tokenizer_vectors.py
"""

import json
import random
from pathlib import Path

import tokenizers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOKENIZERS = ["rust-crates-512", "rust-crates-1024", "webdocs-8192", "webdocs-32768"]


def texts():
    """Hand-picked edge cases, then random strings from alphabets in which the pre-tokenizer's classes meet."""
    yield from [
        "", " ", "  ", "\n", "\n\n\n", "\t\tx", " \n x", "a  b   c    ", "x\r\ny", "\0", "a\0b", "\x7f\x1b[0m",
        "fn main() {\n    println!(\"{}\", 0x1F_u8);\n}\n", "//! It's what we've got; they'll, I'd, I'm, you're, can't", "'S 'T 'RE IT'S",
        "don\u2019t", "<|endoftext|>", "a<|endoftext|>b", "caf\u00e9 cafe\u0301", "\u4e16\u754c\u3002 \u3053\u3093", "\u0661\u0662\u0663 \u00bd \u2163 \u00b2",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "\u00a0x \u3000y \u2028z \u0085w \u200bv \ufeffu \u180et", "\u01c5\u02b0\u05d0\u0e01\u0e31", "a_b-c+d=1.5e-3", "1234567890 12,345.678",
        "".join(map(chr, range(256))), "\ud7ff\ue000\uffff\U00010000\U0010ffff",
    ]
    generator = random.Random(20251120)
    alphabets = [
        "ab '\n", " \t\n\r\u00a0\u3000x", "'sStTrevmldD a", "0a\u0661\u00b2 \u00bd_", "".join(map(chr, range(32, 127))) + "\n",
        "\u00e9e\u0301\u4e16\U0001f600 \u200d1", "".join(map(chr, range(0, 0x300))),
    ]
    for alphabet in alphabets:
        for _ in range(12):
            yield "".join(generator.choice(alphabet) for _ in range(generator.randrange(1, 40)))
    for _ in range(24):
        yield "".join(chr(c) for c in (generator.randrange(0x11000) for _ in range(12)) if not 0xD800 <= c < 0xE000)


def main():
    vectors = {"made_by": f"Python tokenizers {tokenizers.__version__}", "texts": list(texts()), "ids": {}}
    for name in TOKENIZERS:
        tokenizer = tokenizers.Tokenizer.from_file(str(ROOT / "manifests" / "tokenizers" / name / "tokenizer.json"))
        tokenizer.encode_special_tokens = True
        vectors["ids"][name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in vectors["texts"]]
    text = "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in vectors.items()) + "\n}\n"
    (HERE / "tokenizer_vectors.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
