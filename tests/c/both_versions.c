/* libdat.so.1 and libdat2.so.2 in one process, both loaded by dlopen with RTLD_LOCAL: the same IA open in both, each
 * answering with its own version; twice, with both unloaded in between. Which is in the global scope first, the order says: a classic provider of the other
 * version registers with the wrong library then, which must pass it on.
 *
 * usage: both_versions IA-NAME 12|21
 */
#include <dat2/udat.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "need.h"

typedef DAT_RETURN open_func(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32,
                             DAT_BOOLEAN);
typedef DAT_RETURN query_func(DAT_IA_HANDLE, DAT_EVD_HANDLE *, DAT_IA_ATTR_MASK, void *, DAT_PROVIDER_ATTR_MASK, void *);
typedef DAT_RETURN close_func(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

static void *find(void *library, const char *name)
{
    void *at = dlsym(library, name);
    if (!at) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return at;
}

int main(int argc, char **argv)
{
    const char *names[2] = {"libdat.so.1", "libdat2.so.2"};
    DAT_IA_HANDLE ia[2];
    void *library[2];
    int i, k, round;
    NEED(argc == 3);
    for (round = 0; round < 2; round++) {
        for (k = 0; k < 2; k++) {
            i = argv[2][k] - '1';
            library[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
            if (!library[i])
                fprintf(stderr, "%s\n", dlerror());
            NEED(library[i]);
            /* Each becomes global at its first call. */
            NEED(((open_func *)find(library[i], "dat_ia_openv"))((char *)"no such name", 8, &ia[i], &ia[i], i + 1, 0,
                                                                 DAT_FALSE) != DAT_SUCCESS);
        }
        for (i = 0; i < 2; i++) {
            DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
            /* Name and versions have the same offsets in both. */
            DAT_PROVIDER_ATTR attr;
            NEED(((open_func *)find(library[i], "dat_ia_openv"))(argv[1], 8, &async_evd, &ia[i], i + 1, i ? 0 : 2,
                                                                 DAT_FALSE) == DAT_SUCCESS);
            memset(&attr, 0, sizeof attr);
            NEED(((query_func *)find(library[i], "dat_ia_query"))(ia[i], NULL, 0, NULL, 1, &attr) == DAT_SUCCESS);
            NEED(attr.dapl_version_major == (DAT_UINT32)i + 1);
            NEED(!strcmp(attr.provider_name, argv[1]));
        }
        for (i = 0; i < 2; i++) {
            /* Neither library closes the other's IA. */
            close_func *other = (close_func *)find(library[1 - i], "dat_ia_close");
            NEED(DAT_GET_TYPE(other(ia[i], DAT_CLOSE_ABRUPT_FLAG)) == DAT_INVALID_HANDLE);
            NEED(((close_func *)find(library[i], "dat_ia_close"))(ia[i], DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS);
        }
        /* The next round loads both again. */
        for (i = 0; i < 2; i++)
            NEED(!dlclose(library[i]));
    }
    printf("both_versions: PASS\n");
    return 0;
}
