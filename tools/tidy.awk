# Reads tools/arrows.txt, then C files, and prints what breaks the rules that are visible in the text. See tools/tidy.

function report(line, text) { print FILENAME ":" line ": " text }

# The folder of a path below src/ ("kern" for src/kern/avx2/x.c), or "".
function folder_of(path) {
    if (path !~ /^src\//) return ""
    sub(/^src\//, "", path)
    sub(/\/.*/, "", path)
    return path
}

# A line without comments, strings and characters; in_comment goes on from line to line.
function strip(line,    at) {
    if (in_comment) {
        at = index(line, "*/")
        if (!at) return ""
        line = substr(line, at + 2)
        in_comment = 0
    }
    gsub(/\\["'\\]/, "", line)
    gsub(/"[^"]*"/, "\"\"", line)
    gsub(/'[^']*'/, "''", line)
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, " ", line)
    sub(/\/\/.*/, "", line)
    at = index(line, "/*")
    if (at) {
        line = substr(line, 1, at - 1)
        in_comment = 1
    }
    return line
}

# Long texts, of which a line may be full.
function strip_strings(line) {
    gsub(/\\["'\\]/, "", line)
    gsub(/"[^"]*"/, "", line)
    return line
}

# ---- arrows.txt ----

FNR == 1 { n_file++ }

n_file == 1 {
    sub(/#.*/, "")
    at = index($0, ":")
    if (!at) next
    left = substr($0, 1, at - 1)
    right = substr($0, at + 1)
    split(left, l, /[ \t]+/)
    who = l[1]
    if (who ~ /^</) libraries[who] = right " "
    else {
        if (who ~ /\.[ch]$/) for_file["src/" who] = right " "
        else { rank[who] = l[2]; arrows[who] = right " "; known[who] = 1 }
        n = split(right, r, /[ \t]+/)
        for (i = 1; i <= n; i++) {
            target = r[i]
            sub(/\/.*/, "", target)
            if (r[i] == "" || target ~ /\.h$|^\.\./) continue
            if (!(target in known)) report(FNR, who " names " target ", which no line above describes")
            else if (rank[target] >= l[2]) report(FNR, who " of rank " l[2] " names " target " of rank " rank[target])
        }
    }
    next
}

# ---- C files ----

FNR == 1 {
    finish_file()
    folder = folder_of(FILENAME)
    in_comment = head_done = off = why_long = depth = 0
    signature = ""
    start = 0
    split("", labels)
    isa = FILENAME ~ /^src\/kern\/[a-z0-9]+\// && FILENAME !~ /^src\/kern\/generic\// || FILENAME ~ /^tests\/kern\//
    own = FILENAME
    sub(/.*\//, "", own)
}

{
    raw = $0
    last_file = FILENAME
    last_line = FNR
    if (!head_done) {
        if (raw ~ /long because/) why_long = 1
        if (raw ~ /\*\/|^#/) head_done = 1
    }

    if (raw ~ /clang-format off/) off = 1
    width = raw
    gsub(/[\200-\277]/, "", width)
    if (length(width) > 120 && !off && length(strip_strings(raw)) > 60)
        report(FNR, "a line of " length(width) " columns (120)")
    if (raw ~ /clang-format on/) off = 0
    if (raw ~ /[ \t]$/) report(FNR, "space at the end of the line")
    if (raw ~ /\t/) report(FNR, "a tab")

    if (raw ~ /^[ \t]*#[ \t]*include[ \t]/) { include(raw); next }
    if (raw ~ /^#ifndef [A-Z0-9_]+_H$/ && FILENAME ~ /\.h$/ && !(FILENAME in guarded)) guard(raw)

    code = strip(raw)
    if (code ~ /[^ \t]/) { banned(code); functions_of(code) }
}

END { finish_file(); long_functions() }

function finish_file() {
    if (last_file == "" || last_file ~ /_tables\.[ch]$/) return
    if (last_line > 1200) print last_file ":" last_line ": more than 1200 lines: split it"
    else if (last_line > 800 && !why_long)
        print last_file ":" last_line ": more than 800 lines and no reason in the head comment (\"long because ...\")"
}

function include(line,    path, target, allowed, lib, what) {
    if (match(line, /<[^>]*>/)) {
        what = substr(line, RSTART, RLENGTH)
        if (what ~ /<(immintrin|x86intrin|arm_neon|arm_sve|[a-z]mmintrin)\.h>/ && !isa)
            report(FNR, "intrinsics belong in src/kern/<isa>")
        if (folder == "") return
        for (lib in libraries)
            if (index(what, lib) == 1 && index(libraries[lib], " " folder " ") == 0)
                report(FNR, what " is not met in " folder)
        return
    }
    if (folder == "" || !match(line, /"[^"]*"/)) return
    path = substr(line, RSTART + 1, RLENGTH - 2)
    target = path
    if (!sub(/\/.*/, "", target)) target = path
    if (!(folder in known)) { report(FNR, "folder " folder " is not in tools/arrows.txt"); return }
    if (target == folder) return
    allowed = arrows[folder] for_file[FILENAME]
    if (index(allowed, " " target " ") == 0 && index(allowed, " " path " ") == 0)
        report(FNR, folder " may not include " path)
}

function guard(line,    want) {
    guarded[FILENAME] = 1
    want = toupper(FILENAME)
    sub(/^(SRC|INCLUDE)\//, "", want)
    gsub(/[^A-Z0-9]/, "_", want)
    sub(/^#ifndef /, "", line)
    if (line != want) report(FNR, "the guard is called " line " and not " want)
}

# Calls to NAME(, not members and not longer names.
function calls(code, names) { return code ~ ("(^|[^A-Za-z0-9_.>])(" names ")[ ]*\\(") }

function banned(code) {
    if (calls(code, "strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|rand|srand|gets"))
        report(FNR, "a banned function: strcpy strcat sprintf strtok atoi atol atof rand gets")
    if (code ~ /__attribute__/ && FILENAME != "src/base/attr.h") report(FNR, "attributes have names in base/attr.h")
    if (code ~ /(^|[^a-z0-9_])(_mm[0-9]*_[a-z]|__m(128|256|512)|v(ld|st)1q?_)/ && !isa)
        report(FNR, "intrinsics belong in src/kern/<isa>")
    if (folder == "") return
    if (calls(code, "malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|alloca") &&
        FILENAME !~ /^src\/base\/mem\.[ch]$/)
        report(FNR, "memory comes from base/mem.h")
    if (calls(code, "getenv|secure_getenv|setenv") && FILENAME != "src/base/env.c") report(FNR, "the environment is read in base/env.c")
    if (calls(code, "pthread_create") && FILENAME != "src/sys/thread.c") report(FNR, "threads start in sys/thread.c")
    if (folder != "cmd") {
        if (calls(code, "printf|vprintf|puts|putchar|exit|_exit|quick_exit") || code ~ /[^a-z0-9_]stdout[^a-z0-9_]/)
            report(FNR, "stdout and exit belong to cmd")
    }
}

# A function starts at a line in column 0 with "(" and ends at "}" in column 0 (the project's format).
function functions_of(code,    label) {
    if (depth) {
        if (match(code, /^[ \t]*[a-z_][a-z0-9_]*:([^:]|$)/) && code !~ /^[ \t]*default:/) {
            label = code
            gsub(/^[ \t]*|:.*/, "", label)
            labels[label] = FNR
        }
        if (match(code, /goto [a-z_0-9]+/)) {
            label = substr(code, RSTART + 5, RLENGTH - 5)
            if (label in labels) report(FNR, "goto backwards")
        }
        if (code ~ /^}/) { depth = 0; counted(start, FNR) }
        return
    }
    if (signature == "" && (code !~ /^[A-Za-z_]/ || code ~ /^(typedef|extern "")/)) return
    if (signature == "") start = FNR
    signature = signature code
    if (code ~ /^#|^}/ || signature ~ /=/) { if (code ~ /[;{}]$/) signature = ""; if (code ~ /^[#}]/) signature = ""; return }
    if (code ~ /;[ \t]*$/ && code !~ /{/) { signature = ""; return }
    if (code !~ /{/) return
    if (signature ~ /\(/ && signature !~ /^(static )?(const )?(struct|enum|union) [a-z0-9_]* *{/) {
        if (code ~ /}[ \t]*$/) counted(start, FNR)
        else { depth = 1; split("", labels) }
    }
    signature = ""
}

function counted(from, to,    n) {
    n = to - from + 1
    print n >functions
    n_functions++
    if (n > 70) too_long[n_long++] = FILENAME ":" from ": a function of " n " lines (70)"
}

# Up to one in a hundred may be longer: a table of cases reads best whole.
function long_functions(    i) {
    if (n_long * 100 > n_functions) for (i = 0; i < n_long; i++) print too_long[i]
}
