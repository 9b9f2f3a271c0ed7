# Xenon. `make` builds build/xenon; `make check`, `make test`, `make full` run ever more tests.
#
#   MODE   release (default) debug asan tsan fuzz     CC   gcc (default) or clang
#
# Compilers and modes never share objects: everything lands in build/<compiler>-<mode>/. The folder of a kernel is
# its instruction set: src/kern/<isa>/ gets exactly one line of flags below, everything else none.

MODE ?= release
CC   := $(if $(filter default,$(origin CC)),gcc,$(CC))
B    := build/$(notdir $(CC))-$(MODE)

PKGS := hwloc libevent libevent_openssl libevent_pthreads openssl jansson libxxhash libpcre2-8 libutf8proc libcurl libedit
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wpointer-arith -Wwrite-strings \
        -Wcast-qual -Wdouble-promotion -Wformat=2 -Wimplicit-fallthrough -Werror

OPT_release := -O2
OPT_debug   := -O1 -DXENON_DEBUG
OPT_asan    := -O1 -DXENON_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan    := -O1 -DXENON_DEBUG -fsanitize=thread -fno-omit-frame-pointer
OPT_fuzz    := -O1 -DXENON_DEBUG -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
LDOPT_asan  := -fsanitize=address,undefined
LDOPT_tsan  := -fsanitize=thread
LDOPT_fuzz  := -fsanitize=address,undefined

KFLAGS_generic := -ffp-contract=off
KFLAGS_avx2    := -mavx2 -mfma -mf16c -mbmi2 -ffp-contract=off
KFLAGS_avx512  := -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c -mbmi2 -ffp-contract=off

MACHINE := $(shell $(CC) -dumpmachine)
ISA_DIRS := generic $(if $(findstring x86_64,$(MACHINE)),avx2 avx512)

CFLAGS  += -std=gnu17 -g $(OPT_$(MODE)) $(WARN) -Isrc -Iinclude -D_GNU_SOURCE -pthread -ffp-contract=off \
           $(shell pkg-config --cflags $(PKGS) | sed 's/-I/-isystem /g')
LDFLAGS += $(LDOPT_$(MODE)) -pthread
LDLIBS  += $(shell pkg-config --libs $(PKGS)) -lm

SRC  := $(filter-out src/kern/% src/cmd/%,$(wildcard src/*/*.c src/*/*/*.c)) $(wildcard src/kern/*.c) \
        $(foreach d,$(ISA_DIRS),$(wildcard src/kern/$d/*.c))
CMD  := $(wildcard src/cmd/*.c)
LIB  := $B/libxenon.a
OBJ  := $(SRC:%.c=$B/%.o)
UNIT := $(patsubst %.c,$B/%,$(wildcard tests/unit/*_test.c tests/kern/*_test.c tests/sim/*_test.c tests/fault/*_test.c \
        tests/golden/*_test.c))
FUZZ := $(patsubst fuzz/%_fuzz.c,%,$(wildcard fuzz/*_fuzz.c))
BENCH := $(patsubst %.c,$B/%,$(wildcard bench/*.c))

.PHONY: all lib unit bench check test full tidy clean fuzz-replay
.SECONDARY:

all: build/xenon

build/xenon: $B/xenon
	@ln -sf ../$< $@

lib: $(LIB)
unit: $(UNIT)
bench: $(BENCH)

$B/xenon: $(CMD:%.c=$B/%.o) $(LIB)
	$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)

$(LIB): $(OBJ)
	@rm -f $@
	@ar rcs $@ $^

$B/src/kern/%.o: src/kern/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(KFLAGS_$(firstword $(subst /, ,$*))) -MMD -MP -c $< -o $@

$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$B/tests/%: $B/tests/%.o $(LIB)
	$(CC) $(LDFLAGS) $^ -o $@ -lcmocka $(LDLIBS)

$B/bench/%: $B/bench/%.o $(LIB)
	$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)

# One fuzz target: `make MODE=fuzz CC=clang build/clang-fuzz/fuzz/NAME`; any other mode links fuzz/replay.c instead,
# which runs the inputs named on its command line once.
$B/fuzz/%: $B/fuzz/%_fuzz.o $(if $(filter fuzz,$(MODE)),,$B/fuzz/replay.o) $(LIB)
	$(CC) $(LDFLAGS) $(if $(filter fuzz,$(MODE)),-fsanitize=fuzzer) $^ -o $@ $(LDLIBS)

clean:
	rm -rf build

-include $(shell find $B -name '*.d' 2>/dev/null)
