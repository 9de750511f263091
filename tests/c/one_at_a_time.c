/* A classic provider for one thread at a time: it ends the process if two are in its functions. The IA
 * `refused` does not open.
 */
#define dat_provider_init init_of_the_classic_provider
#define dat_provider_fini fini_of_the_classic_provider
#include "classic_provider.c"
#undef dat_provider_init
#undef dat_provider_fini
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *inside;

static void enter(const char *function)
{
    const char *other = __atomic_exchange_n(&inside, function, __ATOMIC_ACQ_REL);
    if (other) {
        fprintf(stderr, "%s and %s at the same time\n", other, function);
        _exit(1);
    }
    usleep(1000);
}

static void leave(void)
{
    __atomic_store_n(&inside, NULL, __ATOMIC_RELEASE);
}

static DAT_RETURN one_ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async_evd, DAT_IA_HANDLE *ia)
{
    DAT_RETURN code;

    enter("ia_open");
    code = strcmp(name, "refused") ? ia_open(name, qlen, async_evd, ia) : (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INVALID_ADDRESS);
    leave();
    return code;
}

static DAT_RETURN one_ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK ia_mask, DAT_IA_ATTR *ia_attr,
                               DAT_PROVIDER_ATTR_MASK mask, DAT_PROVIDER_ATTR *attr)
{
    DAT_RETURN code;

    enter("ia_query");
    code = ia_query(ia, async_evd, ia_mask, ia_attr, mask, attr);
    leave();
    return code;
}

static DAT_RETURN one_ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    DAT_RETURN code;

    enter("ia_close");
    code = ia_close(ia, flags);
    leave();
    return code;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
    enter("init");
    init_of_the_classic_provider(info, params);
    table.ia_open_func = one_ia_open;
    table.ia_query_func = one_ia_query;
    table.ia_close_func = one_ia_close;
    leave();
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    enter("fini");
    fini_of_the_classic_provider(info);
    leave();
}
