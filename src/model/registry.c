/* Every family that can be served: one line each. */
#include "model/model.h"

extern const struct model_def model_llama, model_qwen2, model_qwen3;

const struct model_def *const model_registry[] = {
    &model_llama,
    &model_qwen2,
    &model_qwen3,
    NULL,
};
