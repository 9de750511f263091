/* A classic provider whose dat_pz_create crashes, or never returns if the ia_params contain `hang`. With `exit` it ends the process
 * when it is loaded. It prints text like the suite's own reports.
 */
#define dat_provider_init init_of_the_classic_provider
#include "classic_provider.c"
#undef dat_provider_init
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static DAT_RETURN talkative_ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK ia_mask,
                                     DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK mask, DAT_PROVIDER_ATTR *attr)
{
    puts("holds 0\ndone");
    fflush(stdout);
    return ia_query(ia, async_evd, ia_mask, ia_attr, mask, attr);
}

static int hangs;

static DAT_RETURN pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
    volatile int *invalid = (volatile int *)8;

    (void)ia;
    (void)pz;
    while (hangs)
        pause();
    return *invalid;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
    table.ia_query_func = talkative_ia_query;
    table.pz_create_func = pz_create;
    hangs = strstr(params, "hang") != NULL;
    if (strstr(params, "exit"))
        exit(3);
    init_of_the_classic_provider(info, params);
}
