/* Any bytes as a chat template, rendered with a fixed conversation. Small limits keep a run short; whatever happens, no
 * memory may be lost and no message may be empty. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/jinja_eval.h"
#include "text/jinja_json.h"
#include "text/jinja_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \" h\\u00e9 <b> \"},"
    " {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"t\"}], \"tool_calls\": [{\"function\":"
    " {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, null, true]}}}]}], \"tools\": [{\"type\": \"function\"}],"
    " \"x\": 7, \"s\": \"a,b c\", \"d\": {\"k\": 1, \"j\": \"z\"}, \"l\": [3, 1, 2], \"n\": null}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const int64_t before = mem_live_blocks();
    const struct jinja_limits limits = {.steps = 20000, .output_bytes = 1 << 16, .arena_bytes = 8 << 20};
    struct err_msg msg = {.text = ""};
    struct jinja_template *t = NULL;
    struct jinja_run r;
    struct jinja_value v;
    jinja_run_init(&r, &limits, &msg);
    enum err e = jinja_parse(&t, (const char *)data, size, &msg);
    if (e == ERR_OK) e = jinja_json_parse(&r, "context", context, sizeof context - 1, &v);
    if (e == ERR_OK) e = jinja_eval_render(&r, t, &v);
    CHECK(e == ERR_OK || msg.text[0]);
    jinja_run_deinit(&r);
    jinja_parse_free(t);
    CHECK(mem_live_blocks() == before);
    return 0;
}
