/* libdat by dlopen: RTLD_LOCAL, so that nothing of it is in the global scope. */
#include "job.h"
#include <dlfcn.h>

struct library dat;
static void *handle;

static void *find(const char *name)
{
    void *at = dlsym(handle, name);
    if (!at)
        fprintf(stderr, "%s\n", dlerror());
    NEED(at);
    return at;
}

void library_load(void)
{
    const char *names[] = {getenv("I_MPI_DAT_LIBRARY"), MAJOR == 1 ? "libdat.so" : "libdat2.so",
                           MAJOR == 1 ? "libdat.so.1" : "libdat2.so.2"};
    for (int i = 0; i < 3 && !handle; i++)
        if (names[i])
            handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fprintf(stderr, "%s\n", dlerror());
    NEED(handle);
    *(void **)&dat.registry_list_providers = find("dat_registry_list_providers");
    *(void **)&dat.ia_openv = find("dat_ia_openv");
    *(void **)&dat.ia_close = find("dat_ia_close");
    *(void **)&dat.strerror = find("dat_strerror");
#ifndef UDAPL_1_2
    *(void **)&dat.get_ia_handle = find("dats_get_ia_handle");
    *(void **)&dat.extension_op = find("dat_extension_op");
#endif
    NEED(!dlsym(RTLD_DEFAULT, "dat_ia_openv"));
}

void library_unload(void)
{
    NEED(!dlclose(handle));
    handle = NULL;
}

#ifndef UDAPL_1_2
/* Returns true if an IA can be queried without opening it. */
static int query(const char *name)
{
    DAT_IA_HANDLE ia = NULL;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    memset(&provider, 0xa5, sizeof provider);
    if (dat.extension_op(NULL, DAT_IB_OPEN_QUERY_OP, (char *)name, &ia, (DAT_IA_ATTR_MASK)DAT_IA_FIELD_ALL, &attr,
                         (DAT_PROVIDER_ATTR_MASK)DAT_PROVIDER_FIELD_ALL, &provider) != DAT_SUCCESS)
        return 0;
    NEED(ia != NULL && attr.ia_address_ptr != NULL);
    NEED(provider.srq_supported == 0 || provider.srq_supported == 1);
    CHECK(dat.extension_op(ia, DAT_IB_CLOSE_QUERY_OP));
    return provider.max_private_data_size >= (DAT_COUNT)sizeof(struct hello);
}
#endif

void library_look_for(const char *name)
{
    DAT_COUNT count = 0;
    /* An array of length 0: an error, and the number of entries. */
    DAT_RETURN code = dat.registry_list_providers(0, &count, NULL);
    NEED(code == (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1) && count > 0);
    DAT_PROVIDER_INFO *infos = calloc(count, sizeof *infos), **list = calloc(count, sizeof *list);
    int found = 0;
    for (int i = 0; i < count; i++)
        list[i] = &infos[i];
    CHECK(dat.registry_list_providers(count, &count, list));
    for (int i = 0; i < count; i++) {
        int usable = 1;
#ifndef UDAPL_1_2
        usable = query(infos[i].ia_name);
#endif
        found |= usable && !strcmp(infos[i].ia_name, name);
    }
    NEED(found);
    free(list);
    free(infos);
}
