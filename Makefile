# Xenon. `make` builds build/xenon; `make check`, `make test`, `make full` run ever more tests.
#
#   MODE   release (default) debug asan tsan fuzz emulate neon    CC   gcc (default) or clang    V=1   show the commands
#
# Compilers and modes never share objects: everything lands in build/<compiler>-<mode>/. The folder of a kernel is
# its instruction set: src/kern/<isa>/ gets exactly one line of flags below, everything else none.

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

MODE ?= release
CC   := $(if $(filter default,$(origin CC)),gcc,$(CC))
B    := build/$(notdir $(CC))-$(MODE)

PKGS := hwloc libevent libevent_openssl libevent_pthreads openssl jansson libxxhash libpcre2-8 libutf8proc libedit
pkgs  = $(if $(filter neon,$(MODE)),,$(shell pkg-config $1 $(PKGS) | sed 's/-I/-isystem /g'))
CMOCKA := $(if $(filter neon,$(MODE)),,-lcmocka)
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wpointer-arith -Wwrite-strings \
        -Wcast-qual -Wdouble-promotion -Wformat=2 -Wimplicit-fallthrough -Werror

OPT_release := -O2
OPT_debug   := -O1 -DXENON_DEBUG
OPT_asan    := -O1 -DXENON_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan    := -O1 -DXENON_DEBUG -fsanitize=thread -fno-omit-frame-pointer
OPT_fuzz    := -O1 -DXENON_DEBUG -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
OPT_emulate := -O2 -DXENON_EMULATE_AVX512 -Wno-psabi
OPT_neon    := -O2 -DXENON_EMULATE_NEON -Itests/kern/cross
LDOPT_asan  := -fsanitize=address,undefined
LDOPT_tsan  := -fsanitize=thread
LDOPT_fuzz  := -fsanitize=address,undefined
LDOPT_neon  := -static

KFLAGS_generic := -ffp-contract=off
KFLAGS_avx2    := -mavx2 -mfma -mf16c -mbmi2 -ffp-contract=off
KFLAGS_avx512  := -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c -mbmi2 -ffp-contract=off
ifeq ($(MODE),emulate)
KFLAGS_avx512  := $(KFLAGS_avx2)
endif
KFLAGS_neon    := -march=armv8.2-a+dotprod -ffp-contract=off
KFLAGS_avx512bf16 := $(KFLAGS_avx512) $(if $(filter emulate,$(MODE)),,-mavx512bf16)

MACHINE := $(shell $(CC) -dumpmachine)
ISA_DIRS := generic $(if $(findstring x86_64,$(MACHINE)),avx2 avx512 avx512bf16) \
            $(if $(findstring aarch64,$(MACHINE)),neon)

CFLAGS  += -std=gnu17 -g $(OPT_$(MODE)) $(WARN) -Isrc -Iinclude -D_GNU_SOURCE -pthread -ffp-contract=off \
           $(call pkgs,--cflags)
LDFLAGS += $(LDOPT_$(MODE)) -pthread
LDLIBS  += $(call pkgs,--libs) -lm

KERN := $(wildcard src/kern/*.c) $(foreach d,$(ISA_DIRS),$(wildcard src/kern/$d/*.c))
SRC  := $(filter-out src/kern/% src/cmd/%,$(wildcard src/*/*.c src/*/*/*.c)) $(KERN)
ifneq ($(filter emulate neon,$(MODE)),)
SRC  := $(filter src/base/% src/tensor/% src/quant/% src/kern/%,$(SRC))
endif
CMD  := $(wildcard src/cmd/*.c)
OBJ  := $(SRC:%.c=$B/%.o)
LIB  := $B/libxenon.a

# Test programs are the files *_test.c; other .c files beside them are helpers, linked where they are needed. An
# *_emulated_test.c runs AVX-512 sources through SIMDe.
SIMDE := $(wildcard /usr/include/simde/x86/avx512.h)
tests = $(patsubst %.c,$B/%,$(filter-out $(if $(SIMDE),,%_emulated_test.c),$(foreach d,$1,$(wildcard tests/$d/*_test.c))))
HELP := $(patsubst %.c,$B/%.o,$(filter-out %_test.c,$(wildcard tests/kern/*.c $(if $(filter emulate neon,$(MODE)),, \
        tests/unit/*.c tests/golden/*.c tests/sim/*.c tests/fault/*.c))))
UNIT := $(call tests,unit kern sim fault golden)
EXAMPLES := $(patsubst %.c,$B/%,$(wildcard docs/*.c))
FUZZ := $(patsubst fuzz/%_fuzz.c,%,$(wildcard fuzz/*_fuzz.c))
BENCH := $(patsubst %.c,$B/%,$(wildcard bench/*.c))

.PHONY: all lib unit fuzz bench lint tidy format check test full kern-emulated kern-emulated-programs kern-neon \
        kern-neon-programs fuzz-run clean compile_commands.json
.SECONDARY:

all: build/xenon

build/xenon: $B/xenon
	@ln -sf ../$< $@

lib: $(LIB)
unit: $(UNIT)
fuzz: $(FUZZ:%=$B/fuzz/%)
bench: $(BENCH)

# ---- Building ----

run = $(if $(V),,@echo '  $1 $@'; )$2

# What a build depends on besides sources, as files that change only with their text: the flags, and the list of
# objects, so that a source that goes away leaves the archive.
keep = $(shell mkdir -p $B; echo '$2' | cmp -s - $B/$1 || echo '$2' >$B/$1)
ifneq ($(MAKECMDGOALS),clean)
$(call keep,flags,$(CC) $(CFLAGS) $(foreach d,$(ISA_DIRS),$(KFLAGS_$d)) $(LDFLAGS) $(LDLIBS))
$(call keep,objects,$(OBJ))
endif

$B/xenon: $(CMD:%.c=$B/%.o) $(LIB)
	$(call run,LD,$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS))

$(LIB): $(OBJ) $B/objects
	@rm -f $@
	$(call run,AR,ar rcs $@ $(OBJ))

$B/libhelp.a: $(HELP)
	@rm -f $@
	$(call run,AR,ar rcs $@ $^)

$B/src/kern/%.o: src/kern/%.c $B/flags
	@mkdir -p $(@D)
	$(call run,CC,$(CC) $(CFLAGS) $(KFLAGS_$(firstword $(subst /, ,$*))) -MMD -MP -c $< -o $@)

# A pragma gives them the instruction set, so the compiler notes that vectors are passed in another way elsewhere.
$B/tests/kern/%_emulated_test.o: CFLAGS += -Wno-psabi

$B/%.o: %.c $B/flags
	@mkdir -p $(@D)
	$(call run,CC,$(CC) $(CFLAGS) -MMD -MP -c $< -o $@)

$B/tests/%: $B/tests/%.o $B/libhelp.a $(LIB)
	$(call run,LD,$(CC) $(LDFLAGS) $^ -o $@ $(CMOCKA) $(LDLIBS))

$B/bench/%: $B/bench/%.o $(LIB)
	$(call run,LD,$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS))

$B/docs/%: $B/docs/%.o $(LIB)
	$(call run,LD,$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS))

# One fuzz target: `make MODE=fuzz CC=clang build/clang-fuzz/fuzz/NAME`; any other mode links fuzz/replay.c instead,
# which runs the inputs named on its command line once.
$B/fuzz/%: $B/fuzz/%_fuzz.o $(if $(filter fuzz,$(MODE)),,$B/fuzz/replay.o) $(LIB)
	$(call run,LD,$(CC) $(LDFLAGS) $(if $(filter fuzz,$(MODE)),-fsanitize=fuzzer) $^ -o $@ $(LDLIBS))

# ---- Tests: the commands of every stage; tests/run counts them (docs/TESTING.md) ----

SELF := +@$(MAKE) --no-print-directory CC=$(CC)
A := build/$(notdir $(CC))-asan
T := build/$(notdir $(CC))-tsan
E := build/gcc-emulate
N := build/gcc-neon
MODEL := $(or $(XENON_MODEL_SMOLLM2),$(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/xenon/SmolLM2-135M-Instruct.Q4_1.gguf))
ifneq ($(MODEL),)
export XENON_MODEL_SMOLLM2 := $(MODEL)
endif

# The other compiler reads every source with the same warnings.
OTHER := $(if $(findstring clang,$(CC)),gcc,clang)
LINT  := $(if $(shell command -v $(OTHER)),$(patsubst %.c,$B/$(OTHER)/%.ok,$(SRC) $(CMD)))

$B/$(OTHER)/%.ok: %.c $B/flags
	@mkdir -p $(@D)
	$(call run,CC,$(OTHER) $(CFLAGS) $(if $(filter src/kern/%,$<),$(KFLAGS_$(word 3,$(subst /, ,$<)))) -fsyntax-only \
	    -MMD -MP -MT $@ -MF $(@:.ok=.d) $<) && touch $@

lint: $(LINT)

# tools/tidy reads the names in the objects, and compiles every header alone.
export TIDY_OBJECTS := $B
export TIDY_CFLAGS := $(CFLAGS)
export TIDY_KFLAGS_avx2 := $(KFLAGS_avx2)
export TIDY_KFLAGS_avx512 := $(KFLAGS_avx512)
export TIDY_KFLAGS_neon := $(KFLAGS_neon)

tidy: $(LIB) $(LINT)
	@tools/tidy

format:
	@tools/format

replay = $(foreach f,$(FUZZ),'$1/fuzz/$f fuzz/corpus/$f')
KERNELS := $(filter-out %_emulated_test,$(patsubst %.c,%,$(wildcard tests/kern/*_test.c)))
EMULATED := $(KERNELS:%=$E/%)
QEMU := $(if $(and $(shell command -v aarch64-linux-gnu-gcc),$(wildcard /usr/aarch64-linux-gnu/lib/libc.a)),$(notdir \
        $(shell command -v qemu-aarch64 || command -v qemu-aarch64-static)))
NEON := $(if $(QEMU),$(KERNELS:%='$(QEMU) $N/%') '$(QEMU) -cpu cortex-a72 $N/tests/kern/gemm_test', \
        'echo skipped: the NEON kernels need aarch64-linux-gnu-gcc and qemu-aarch64')

check: $(LIB) $(LINT) $(call tests,unit kern) fuzz
	@tests/run -l build/logs tools/tidy $(call tests,unit kern) $(call replay,$B)

# Alone: what loads every core by itself. Not under ASan: what would take minutes there and shows nothing new.
ALONE := 'tools/e2e $B/xenon' $(filter %/real_test %/equivalence_test,$(UNIT)) --
ASAN  := $(patsubst $B/%,$A/%,$(filter-out %/real_test %/equivalence_test %_emulated_test,$(UNIT)))
TEST  := $(ALONE) 'tools/e2e fake' 'tools/e2e --small $A/xenon' tools/tidy $(filter-out $(ALONE),$(UNIT)) \
         $(call replay,$B) $(ASAN) $(call replay,$A) $(if $(SIMDE),$(EMULATED)) $(NEON)

test: all lint unit fuzz $(EXAMPLES)
	$(SELF) MODE=asan B=$A $A/xenon $(ASAN) fuzz $(EXAMPLES:$B/%=$A/%)
	$(if $(SIMDE),$(SELF) kern-emulated-programs)
	$(if $(QEMU),$(SELF) kern-neon-programs)
	@tests/run -l build/logs $(TEST)

ISA_LEVELS = $(foreach l,generic avx2,$(foreach t,$(call tests,kern golden),'env XENON_ISA=$l $t'))

full: all lint unit fuzz $(EXAMPLES)
	$(SELF) MODE=asan B=$A $A/xenon $(ASAN) fuzz $(EXAMPLES:$B/%=$A/%)
	$(if $(SIMDE),$(SELF) kern-emulated-programs)
	$(if $(QEMU),$(SELF) kern-neon-programs)
	$(SELF) MODE=tsan B=$T $T/xenon $(ASAN:$A/%=$T/%)
	$(SELF) CC=$(OTHER) B=build/$(OTHER)-release unit
	@tests/run -t 3600 -l build/logs $(TEST) \
	    'tools/e2e --tiny $T/xenon' $(ASAN:$A/%=$T/%) $(UNIT:$B/%=build/$(OTHER)-release/%) $(ISA_LEVELS)

# The AVX-512 kernels through SIMDe on AVX2, so that their logic is tested on any x86-64 CPU (GCC, libsimde-dev).
kern-emulated-programs:
	+@$(MAKE) --no-print-directory CC=gcc MODE=emulate B=$E $(EMULATED)

kern-emulated: kern-emulated-programs
	@tests/run -l $E/logs $(EMULATED)

# The NEON kernels on an aarch64 CPU that qemu emulates, and that CPUs without sdot take the generic ones
# (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user).
kern-neon-programs:
	+@$(MAKE) --no-print-directory CC=aarch64-linux-gnu-gcc MODE=neon B=$N $(KERNELS:%=$N/%)

kern-neon: $(if $(QEMU),kern-neon-programs)
	@tests/run -l build/logs-neon $(NEON)

# `make fuzz-run FUZZ=gguf SECONDS=600`: new inputs stay in build/corpus; what crashes goes to fuzz/corpus with its mend.
SECONDS ?= 60
fuzz-run:
	+@$(MAKE) --no-print-directory CC=clang MODE=fuzz B=build/clang-fuzz $(FUZZ:%=build/clang-fuzz/fuzz/%)
	@for f in $(FUZZ); do mkdir -p build/corpus/$$f; \
	    build/clang-fuzz/fuzz/$$f -max_total_time=$(SECONDS) -artifact_prefix=build/corpus/$$f- \
	        build/corpus/$$f fuzz/corpus/$$f || exit 1; done

compile_commands.json:
	@bear -- $(MAKE) --no-print-directory -B lib

clean:
	rm -rf build

-include $(shell find $B -name '*.d' 2>/dev/null)
