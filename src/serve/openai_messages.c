#include "serve/openai_messages.h"

#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "serve/openai_fields.h"

enum { MESSAGES_MAX = 65536, TOOLS_MAX = 1024 };

static bool known_role(const char *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < N_ELEMENTS(roles); i++)
        if (strcmp(role, roles[i]) == 0) return true;
    return false;
}

/* The text of one content part, borrowed; NULL with *e filled. */
static const json_t *part_text(const json_t *part, const char *where, struct openai_error *e) {
    if (json_is_string(part)) return part;
    const char *const type = json_string_value(json_object_get(part, "type"));
    if (!type) {
        openai_error_field(e, where, "Invalid '%s': a content part must be an object with a string 'type'.", where);
        return NULL;
    }
    const bool refusal = strcmp(type, "refusal") == 0;
    if (!refusal && strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0) {
        openai_error_set(e, 400, "unsupported_content", where,
                         "Invalid '%s': only text content is supported by this model.", where);
        return NULL;
    }
    const json_t *const text = json_object_get(part, refusal ? "refusal" : "text");
    if (json_is_string(text)) return text;
    openai_error_field(e, where, "Invalid '%s': a text part needs a string 'text'.", where);
    return NULL;
}

/* Joins the text parts of a content array. */
static bool flatten_content(json_t *message, const json_t *parts, int i_message, struct openai_error *e) {
    struct strbuf text = {0};
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        char where[64];
        snprintf(where, sizeof where, "messages[%d].content[%zu]", i_message, i);
        const json_t *const t = part_text(part, where, e);
        if (!t) {
            strbuf_deinit(&text);
            return false;
        }
        if (i > 0) strbuf_putc(&text, '\n');
        strbuf_append(&text, json_string_value(t), json_string_length(t));
    }
    const bool ok =
        !text.failed && json_object_set_new(message, "content", json_stringn(strbuf_cstr(&text), text.len)) == 0;
    strbuf_deinit(&text);
    return ok || openai_error_set(e, 503, NULL, NULL, "memory is short; try again");
}

/* Arguments arrive as a JSON text; templates that walk over them need the value. What does not parse stays a string. */
static bool normalize_call(json_t *call, const char *where, struct openai_error *e) {
    json_t *const function = json_object_get(call, "function");
    if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
        return openai_error_field(e, where, "Invalid '%s': a tool call needs 'function' with a string 'name'.", where);
    const json_t *const args = openai_fields_get(function, "arguments");
    if (!args || json_is_object(args)) return true;
    if (!json_is_string(args))
        return openai_error_field(e, where, "Invalid '%s': 'arguments' must be a JSON text.", where);
    struct openai_error ignored;
    json_t *const value = openai_fields_parse(json_string_value(args), json_string_length(args), &ignored);
    if (value && json_object_set_new(function, "arguments", value) != 0)
        return openai_error_set(e, 503, NULL, NULL, "memory is short; try again");
    return true;
}

static bool normalize_calls(const json_t *calls, int i_message, struct openai_error *e) {
    size_t i;
    json_t *call;
    char where[64];
    snprintf(where, sizeof where, "messages[%d].tool_calls", i_message);
    if (!json_is_array(calls)) return openai_error_field(e, where, "Invalid '%s': expected an array.", where);
    json_array_foreach(calls, i, call) {
        snprintf(where, sizeof where, "messages[%d].tool_calls[%zu]", i_message, i);
        if (!normalize_call(call, where, e)) return false;
    }
    return true;
}

static bool normalize_message(json_t *m, int i, struct openai_error *e) {
    char where[64];
    snprintf(where, sizeof where, "messages[%d]", i);
    if (!json_is_object(m))
        return openai_error_field(e, where, "Invalid '%s': expected an object, but got %s instead.", where,
                                  openai_fields_type(m));
    const char *const role = json_string_value(json_object_get(m, "role"));
    snprintf(where, sizeof where, "messages[%d].role", i);
    if (!role || !known_role(role))
        return openai_error_field(
            e, where, "Invalid '%s': expected system, developer, user, assistant, tool or function.", where);
    const json_t *const calls = openai_fields_get(m, "tool_calls");
    if (calls && !normalize_calls(calls, i, e)) return false;
    const json_t *const content = openai_fields_get(m, "content");
    snprintf(where, sizeof where, "messages[%d].content", i);
    if (json_is_string(content)) return true;
    if (json_is_array(content)) return flatten_content(m, content, i, e);
    if (content)
        return openai_error_set(e, 400, "invalid_type", where,
                                "Invalid type for '%s': expected a string or an array of parts, but got %s instead.",
                                where, openai_fields_type(content));
    if (strcmp(role, "assistant") != 0) return openai_error_field(e, where, "Missing required parameter: '%s'.", where);
    if (json_object_set_new(m, "content", json_string("")) != 0)
        return openai_error_set(e, 503, NULL, NULL, "memory is short; try again");
    return true;
}

bool openai_messages_normalize(json_t *root, struct openai_error *e) {
    json_t *messages = NULL, *m;
    size_t i;
    if (!openai_fields_array(root, "messages", &messages, e)) return false;
    if (!messages)
        return openai_error_set(e, 400, "missing_required_parameter", "messages",
                                "Missing required parameter: 'messages'.");
    const size_t n = json_array_size(messages);
    if (n == 0)
        return openai_error_field(e, "messages", "Invalid 'messages': an empty array; at least one message is needed.");
    if (n > MESSAGES_MAX)
        return openai_error_field(e, "messages", "Invalid 'messages': more than %d messages.", MESSAGES_MAX);
    json_array_foreach(messages, i, m) if (!normalize_message(m, (int)i, e)) return false;
    return true;
}

static bool check_tools(const json_t *tools, struct openai_error *e) {
    size_t i;
    const json_t *tool;
    if (json_array_size(tools) > TOOLS_MAX)
        return openai_error_field(e, "tools", "Invalid 'tools': more than %d.", TOOLS_MAX);
    json_array_foreach(tools, i, tool) {
        char where[64];
        snprintf(where, sizeof where, "tools[%zu]", i);
        const char *const type = json_string_value(json_object_get(tool, "type"));
        const json_t *const function = json_object_get(tool, "function");
        if (!type || strcmp(type, "function") != 0 || !json_is_string(json_object_get(function, "name")))
            return openai_error_field(
                e, where, "Invalid '%s': expected {\"type\": \"function\", \"function\": {\"name\": ...}}.", where);
    }
    return true;
}

bool openai_messages_tools(const json_t *root, json_t **tools, struct openai_error *e) {
    json_t *all = NULL;
    *tools = NULL;
    if (!openai_fields_array(root, "tools", &all, e) || !check_tools(all, e)) return false;
    const bool any = json_array_size(all) > 0;
    const json_t *const choice = openai_fields_get(root, "tool_choice");
    const char *const word = json_string_value(choice);
    if (choice && !word && !json_is_object(choice))
        return openai_error_set(e, 400, "invalid_type", "tool_choice",
                                "Invalid type for 'tool_choice': expected a string or an object, but got %s instead.",
                                openai_fields_type(choice));
    const bool none = word && strcmp(word, "none") == 0, automatic = word && strcmp(word, "auto") == 0;
    if (choice && !none && !any)
        return openai_error_field(e, "tool_choice", "'tool_choice' is only allowed when 'tools' are specified.");
    if (word && !none && !automatic && strcmp(word, "required") != 0)
        return openai_error_field(e, "tool_choice",
                                  "Invalid 'tool_choice': expected none, auto, required or a named function.");
    if (choice && !none && !automatic)
        return openai_error_set(e, 400, "unsupported_parameter", "tool_choice",
                                "'tool_choice' that forces a call is not supported; use auto or none.");
    if (any && !none) *tools = all;
    return true;
}
