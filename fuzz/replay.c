/* Runs a fuzz target once on every file named on the command line (folders are walked one level), for ordinary CI. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *const f = fopen(path, "rb");
    if (!f) return 0;
    if (fseek(f, 0, SEEK_END) != 0) {
        fclose(f);
        return 0;
    }
    const long size = ftell(f);
    rewind(f);
    uint8_t *const data = malloc(size > 0 ? (size_t)size : 1);
    const size_t n = size > 0 ? fread(data, 1, (size_t)size, f) : 0;
    fclose(f);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 1;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *const dir = opendir(argv[i]);
        if (!dir) {
            n += replay_file(argv[i]);
            continue;
        }
        for (const struct dirent *e; (e = readdir(dir));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            n += replay_file(path);
        }
        closedir(dir);
    }
    printf("%d inputs replayed\n", n);
    return n > 0 ? 0 : 1;
}
