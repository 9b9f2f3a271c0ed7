/* Pre-tokenizers by the names that GGUF files carry in tokenizer.ggml.pre. The expressions are those of the models'
 * own tokenizer.json files (models.md 0.9), not the rewritten ones that other engines use for them. */
#include <string.h>

#include "text/tokenizer_int.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SYMBOLS      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL

#define GPT2     "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3   WORDS "\\p{N}{1,3}" SYMBOLS
#define QWEN2    WORDS "\\p{N}" SYMBOLS
#define QWEN35   CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL
#define UPPER    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_WORDS(suffix)                                                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix
#define O200K    O200K_WORDS(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL
#define TEKKEN   O200K_WORDS("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL
#define KUPPER   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KLOWER   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI                                                                                                           \
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KUPPER "*" KLOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" KUPPER "+" KLOWER   \
    "*" CONTRACTIONS "?|\\p{N}{1,3}" SYMBOLS
#define CJK      "[一-龥぀-ゟ゠-ヿ]+"
#define DEEPSEEK3                                                                                                      \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" \
    TAIL
/* The cased letters of the Unicode version that DeepSeek's file was made with. */
#define CASED                                                                                                          \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1f7d}ᾀ-ᾴᾶ-ᾼ\\x{1fbe}ῂ-ῄῆ-ῌῐ-\\x{1fd3}ῖ-\\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼ"    \
    "ℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
#define DEEPSEEK_PUNCT "\\s?[!-/:-~！-／：-～‘-‟\\x{3000}-。]+"
#define DEEPSEEK_CJK   "[一-龥ࠀ-一가-\\x{d7ff}]+"

enum { ADDS_BOS = 1, IGNORES_MERGES = 2, NFC = 4, PATTERNS_MAX = 6 };

struct named {
    const char *names; /* separated by spaces */
    unsigned flags;
    const char *patterns[PATTERNS_MAX];
};

static const struct named table[] = {
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", ADDS_BOS | IGNORES_MERGES, {LLAMA3}},
    {"qwen2 deepseek-r1-qwen megrez kormo", NFC, {QWEN2}},
    {"stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"qwen35", NFC, {QWEN35}},
    {"glm4 chatglm-bpe dbrx smaug-bpe", 0, {LLAMA3}},
    {"gpt-2 phi-2 gigachat jina-es jina-de jina-v2-es jina-v2-de a.x-4.0 mellum jais exaone4 trillion granite-docling", 0, {GPT2}},
    {"mpt olmo", NFC, {GPT2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b", 0, {"\\p{N}", GPT2}},
    {"deepseek-v3 hunyuan-dense joyai-llm", 0, {"\\p{N}{1,3}", CJK, DEEPSEEK3}},
    {"deepseek-llm", 0, {"[\\r\\n]", "\\s?[" CASED "]+", DEEPSEEK_PUNCT, "\\s+$", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-coder", 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"gpt-4o llama4 minimax-m2", 0, {O200K}},
    {"tekken", ADDS_BOS | IGNORES_MERGES, {TEKKEN}},
    {"kimi-k2", 0, {KIMI}},
    {"seed-coder", 0, {WORDS "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" TAIL}},
    {"bailingmoe bailingmoe2 llada-moe", 0,
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"falcon", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"bloom poro-chat gpt3-finnish", 0, {" ?[^(\\s|.,!?…。，、।۔،)]+"}},
    {"viking", 0, {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"}},
    {"superbpe", 0, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"default", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

static bool is_one_of(const char *names, const char *name) {
    const size_t len = strlen(name);
    for (const char *p = names; len && (p = strstr(p, name)); p += len)
        if ((p == names || p[-1] == ' ') && (p[len] == ' ' || !p[len])) return true;
    return false;
}

enum err tokenizer_named_apply(struct tokenizer *t, const char *name, bool *adds_bos, struct err_msg *msg) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct named *const n = &table[i];
        if (!is_one_of(n->names, name)) continue;
        if (n->flags & NFC) TRY(normalizer_add(&t->norm, (struct normalizer_step){.kind = NORMALIZER_NFC}, msg));
        for (int k = 0; k < PATTERNS_MAX && n->patterns[k]; k++)
            TRY(pretokenizer_add_regex(&t->pre, n->patterns[k], strlen(n->patterns[k]), msg));
        t->bpe.ignore_merges = n->flags & IGNORES_MERGES;
        *adds_bos = n->flags & ADDS_BOS;
        return ERR_OK;
    }
    return err_set(msg, ERR_UNSUPPORTED, "tokenizer: pre-tokenizer \"%.60s\" (tokenizer.ggml.pre) is not supported", name);
}
