#include "serve/openai_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "serve/json_write.h"
#include "xenon.h"

static const char *type_of(int status) {
    switch (status) {
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "service_unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

ATTR_PRINTF(5, 0)
static void set(struct openai_error *e, int status, const char *code, const char *param, const char *fmt, va_list ap) {
    e->status = status;
    e->type = type_of(status);
    e->code = code;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->message, sizeof e->message, fmt, ap);
}

bool openai_error_set(struct openai_error *e, int status, const char *code, const char *param, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    set(e, status, code, param, fmt, ap);
    va_end(ap);
    return false;
}

bool openai_error_field(struct openai_error *e, const char *param, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    set(e, 400, NULL, param, fmt, ap);
    va_end(ap);
    return false;
}

bool openai_error_from_engine(struct openai_error *e, int code, const char *text) {
    switch (code) {
    case XENON_EARG:
    case XENON_EUNSUPPORTED:
    case XENON_EFORMAT:
        return openai_error_set(e, 400, NULL, NULL, "%s", text);
    case XENON_ELIMIT:
        return openai_error_set(e, 400, "context_length_exceeded", NULL, "%s", text);
    case XENON_EBUSY:
        return openai_error_set(e, 429, "rate_limit_exceeded", NULL, "%s", text);
    case XENON_EDEAD:
        return openai_error_set(e, 503, "server_is_overloaded", NULL, "%s", text);
    case XENON_ENOMEM:
        return openai_error_set(e, 503, "server_is_overloaded", NULL, "memory is short; try again");
    default:
        return openai_error_set(e, 500, NULL, NULL, "%s", text);
    }
}

void openai_error_write(struct strbuf *b, const struct openai_error *e) {
    strbuf_puts(b, "{\"error\":{\"message\":");
    json_write_cstr(b, e->message);
    strbuf_puts(b, ",\"type\":");
    json_write_cstr(b, e->type);
    strbuf_puts(b, ",\"param\":");
    json_write_cstr(b, e->param[0] ? e->param : NULL);
    strbuf_puts(b, ",\"code\":");
    json_write_cstr(b, e->code);
    strbuf_puts(b, "}}");
}
