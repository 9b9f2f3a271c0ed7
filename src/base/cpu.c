#include "base/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const level_names[CPU_N_LEVELS] = {"generic",    "avx2", "avx512",
                                                      "avx512bf16", "amx",  "neon"};

#if defined(__x86_64__)
/* The kernel grants AMX tile data per process: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
static int amx_granted(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const unsigned need = 1u << 22 | 1u << 24 | 1u << 25; /* bf16, tile, int8 */
    if ((d & need) != need) return 0;
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

/* clang 14 does not know "f16c" as a name. */
static int has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1u);
}

static int has_avx512bf16(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1u);
}

enum cpu_level cpu_detect(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !has_f16c() || !__builtin_cpu_supports("bmi2"))
        return CPU_GENERIC;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512cd") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return CPU_AVX2;
    if (!has_avx512bf16()) return CPU_AVX512;
    return amx_granted() ? CPU_AMX : CPU_AVX512BF16;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>
enum cpu_level cpu_detect(void) {
    return getauxval(AT_HWCAP) & (1ul << 20) ? CPU_NEON : CPU_GENERIC; /* HWCAP_ASIMDDP */
}
#else
enum cpu_level cpu_detect(void) { return CPU_GENERIC; }
#endif

int cpu_has(enum cpu_level have, enum cpu_level level) {
    if (level == CPU_GENERIC || have == level) return 1;
    if (have == CPU_NEON || level == CPU_NEON) return 0;
    return have > level;
}

enum err cpu_level_wanted(enum cpu_level *out, struct err_msg *msg) {
    const enum cpu_level have = cpu_detect();
    const char *const name = env_get("XENON_ISA", NULL);
    *out = have;
    if (!name) return ERR_OK;
    for (int i = 0; i < CPU_N_LEVELS; i++) {
        if (strcmp(name, level_names[i]) != 0) continue;
        if (!cpu_has(have, (enum cpu_level)i))
            return err_set(msg, ERR_ARG, "XENON_ISA=%s: this CPU offers only %s; unset it", name,
                           level_names[have]);
        *out = (enum cpu_level)i;
        return ERR_OK;
    }
    return err_set(msg, ERR_ARG,
                   "XENON_ISA=%s: unknown; use generic, avx2, avx512, avx512bf16, amx or neon",
                   name);
}

const char *cpu_level_name(enum cpu_level level) {
    return (unsigned)level < CPU_N_LEVELS ? level_names[level] : "unknown";
}

static char model_name[128] = "unknown CPU";

static void read_model_name(void) {
    FILE *const f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        const char *const colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(model_name, sizeof model_name, "%s", colon + 2);
        model_name[strcspn(model_name, "\n")] = '\0';
        break;
    }
    fclose(f);
}

const char *cpu_model_name(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_model_name);
    return model_name;
}
