/* Two copies of the library in a process, one of them in a namespace of dlmopen(3), each with an IA at the same time.
 *
 * usage: namespaces LIBRARY IA-NAME      prints "namespaces: PASS"
 */
#define _GNU_SOURCE
#include <dat2/udat.h>
#include <dlfcn.h>

#include "need.h"

typedef DAT_RETURN open_function(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32,
                                 DAT_BOOLEAN);
typedef DAT_RETURN close_function(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

static DAT_IA_HANDLE opened(void *library, char *name)
{
    open_function *open = (open_function *)dlsym(library, "dat_ia_openv");
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;

    NEED(open);
    NEED(open(name, 8, &async, &ia, 2, 0, DAT_FALSE) == DAT_SUCCESS);
    return ia;
}

static void closed(void *library, DAT_IA_HANDLE ia)
{
    close_function *close = (close_function *)dlsym(library, "dat_ia_close");

    NEED(close && close(ia, DAT_CLOSE_ABRUPT_FLAG) == DAT_SUCCESS);
}

int main(int argc, char **argv)
{
    void *inner, *outer;
    DAT_IA_HANDLE first, second;

    NEED(argc == 3);
    inner = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    outer = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    NEED(inner && outer);
    first = opened(inner, argv[2]);
    second = opened(outer, argv[2]);
    closed(inner, first);
    closed(outer, second);
    NEED(!dlclose(inner));
    closed(outer, opened(outer, argv[2]));
    puts("namespaces: PASS");
    return 0;
}
