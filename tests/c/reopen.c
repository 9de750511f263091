/* Opens and closes an IA several times; says whether the provider's library is mapped in between.
 *
 * usage: reopen IA-NAME LIBRARY
 */
#include <netinet/in.h>
#include <dat2/udat.h>
#include <stdio.h>
#include <string.h>

static int mapped(const char *library) {
    char line[1024];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, library) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    for (int round = 0; round < 3; round++) {
        DAT_EVD_HANDLE async[2] = {DAT_HANDLE_NULL, DAT_HANDLE_NULL};
        DAT_IA_HANDLE ia[2];
        for (int i = 0; i < 2; i++)
            if (dat_ia_open(argv[1], 8, &async[i], &ia[i]) != DAT_SUCCESS)
                return 1;
        printf("open %d", mapped(argv[2]));
        for (int i = 0; i < 2; i++) {
            if (dat_ia_close(ia[i], DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS)
                return 1;
            printf(" closed %d", mapped(argv[2]));
        }
        printf("\n");
    }
    return 0;
}
