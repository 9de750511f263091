/* dat_registry_providers_related asks the providers of the IAs that are open: a classic one that says yes of "loop", and ours, which
 * say no of all.
 *
 * usage: related      with the IAs classic, loop and user; prints "related: PASS"
 */
#include <netinet/in.h>
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <stdio.h>
#include <stdlib.h>

#include "need.h"

static char classic[] = "classic", loop[] = "loop", user[] = "user";

static DAT_HA_RELATIONSHIP between(char *one, char *other)
{
    DAT_HA_RELATIONSHIP there = DAT_HA_EXTENSION_BASE, back = DAT_HA_EXTENSION_BASE;
    NEED(dat_registry_providers_related(one, other, &there) == DAT_SUCCESS);
    NEED(dat_registry_providers_related(other, one, &back) == DAT_SUCCESS);
    NEED(there == back);
    return there;
}

static DAT_IA_HANDLE opened(char *name)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    NEED(dat_ia_open(name, 8, &async_evd, &ia) == DAT_SUCCESS);
    return ia;
}

int main(void)
{
    DAT_IA_HANDLE ia[3];
    DAT_HA_RELATIONSHIP relation;
    int i;
    /* No IA is open whose provider could be asked. */
    NEED(between(classic, loop) == DAT_HA_UNKNOWN && between(loop, user) == DAT_HA_UNKNOWN);
    NEED(between(loop, loop) == DAT_HA_FALSE);
    ia[0] = opened(classic);
    NEED(between(classic, loop) == DAT_HA_TRUE && between(classic, user) == DAT_HA_FALSE);
    NEED(between(loop, user) == DAT_HA_UNKNOWN);
    ia[1] = opened(user);
    NEED(between(classic, user) == DAT_HA_FALSE && between(loop, user) == DAT_HA_FALSE);
    ia[2] = opened(loop);
    NEED(between(classic, loop) == DAT_HA_CONFLICTING && between(loop, user) == DAT_HA_FALSE);
    NEED(DAT_GET_TYPE(dat_registry_providers_related(classic, (char *)"nobody", &relation)) == DAT_PROVIDER_NOT_FOUND);
    for (i = 0; i < 3; i++)
        NEED(dat_ia_close(ia[i], DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS);
    NEED(between(classic, loop) == DAT_HA_UNKNOWN);
    printf("related: PASS\n");
    return 0;
}
