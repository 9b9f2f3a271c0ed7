/* Instruction-set levels of the running CPU. XENON_ISA=NAME forces a lower level; a higher one than
 * the CPU has is an error of the user.
 * Threads: any. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include "base/err.h"

enum cpu_level {
    CPU_GENERIC,
    CPU_AVX2,       /* avx2 fma f16c bmi2 */
    CPU_AVX512,     /* f cd bw dq vl vnni */
    CPU_AVX512BF16, /* + bf16 */
    CPU_AMX,        /* + amx-tile int8 bf16, granted by the kernel */
    CPU_NEON,       /* aarch64 with dotprod */
    CPU_N_LEVELS
};

/* What the hardware and the kernel allow, regardless of XENON_ISA. */
enum cpu_level cpu_detect(void);

/* The level to use: cpu_detect lowered by XENON_ISA. ERR_ARG for an unknown or unavailable name. */
enum err cpu_level_wanted(enum cpu_level *out, struct err_msg *msg) ATTR_NODISCARD;

/* True when a CPU of level `have` can run code of level `level`. */
int cpu_has(enum cpu_level have, enum cpu_level level);

const char *cpu_level_name(enum cpu_level level);

/* The model name for reports, "AMD EPYC 7763"; "unknown CPU" when the system does not say. */
const char *cpu_model_name(void);

#endif
