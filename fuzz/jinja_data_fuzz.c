/* Any bytes as the messages and variables of a request, rendered by a template that looks at all of them. The first
 * byte chooses the options; a NUL parts the messages from the variables. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char source[] =
    "{%- macro show(x, d=0) -%}{%- if x is string -%}{{ x | trim }}{{ x.upper()[:9] }}"
    "{{ x.split('a')[-1] }}{{ x | title }}"
    "{%- elif x is mapping -%}{%- for k, v in x | dictsort -%}{{ k ~ '=' }}{{ show(v, d + 1) }}{%- endfor -%}"
    "{%- elif x is iterable -%}{%- for y in x -%}{{ loop.index }}{{ show(y, d + 1) }}{{ ',' if not loop.last }}"
    "{%- endfor -%}{%- elif x is number -%}{{ x * 2 }}{{ x | round }}{{ '%s' % x }}{%- else -%}{{ x }}{%- endif -%}"
    "{%- endmacro -%}{%- for m in messages -%}<{{ m.role }}>{{ show(m.content) }}{{ m.reasoning_content }}"
    "{%- for c in m.tool_calls or [] -%}{{ c.function.name }}"
    "{{ c.function.arguments | tojson(indent=2) }}{%- endfor -%}"
    "{{ m | tojson }}{{ m }}{%- endfor -%}{%- if tools -%}{{ tools | map(attribute='function') | list }}{%- endif -%}"
    "{{ show(x) }}{{ y | default('d') }}{{ messages | tojson(sort_keys=true, ensure_ascii=true) }}"
    "{%- if add_generation_prompt %}<assistant>{% endif -%}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct chat_template *t; /* parsed once, for speed */
    struct err_msg msg = {.text = ""};
    struct strbuf out = {0};
    if (size == 0) return 0;
    if (!t) CHECK(chat_template_parse(&t, NULL, source, sizeof source - 1, &msg) == ERR_OK);
    const int64_t before = mem_live_blocks();
    char *const text = mem_xalloc(size + 2);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = text[size] = '\0';
    const char *const rest = text + strlen(text) + 1;
    const bool more = rest < text + size - 1;
    const struct chat_template_input in = {
        .messages = text,
        .kwargs = more ? rest : NULL,
        .tools = data[0] & 8 && more ? rest : NULL,
        .add_generation_prompt = data[0] & 1,
        .continue_final_message = data[0] & 2,
        .parse_arguments = data[0] & 4,
        .now_unix_s = 1796042096,
    };
    const enum err e = chat_template_render(t, &in, &out, &msg);
    CHECK(e == ERR_OK || msg.text[0]);
    strbuf_deinit(&out);
    mem_free(text);
    CHECK(mem_live_blocks() == before);
    return 0;
}
