/* A provider as C programmers wrote them: one handle, a table of a few functions, registered by an undefined symbol
 * that whatever libdat is in the global scope satisfies. Compiled once a version: -DUDAPL_1_2 for 1.2.
 */
#ifdef UDAPL_1_2
#include <dat/dat_registry.h>
#else
#include <dat2/dat_registry.h>
#endif
#include <string.h>

static DAT_PROVIDER table;
static struct {
    DAT_PROVIDER *table;
} object;

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async_evd, DAT_IA_HANDLE *ia)
{
    (void)name;
    (void)qlen;
    object.table = &table;
    *async_evd = (DAT_EVD_HANDLE)&object;
    *ia = (DAT_IA_HANDLE)&object;
    return DAT_SUCCESS;
}

static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK ia_mask, DAT_IA_ATTR *ia_attr,
                           DAT_PROVIDER_ATTR_MASK mask, DAT_PROVIDER_ATTR *attr)
{
    (void)async_evd;
    if (ia != (DAT_IA_HANDLE)&object)
        return DAT_CLASS_ERROR | DAT_INVALID_HANDLE;
    /* As DAPL does. */
    if ((ia_mask & ~DAT_IA_FIELD_ALL) || (mask & ~DAT_PROVIDER_FIELD_ALL))
        return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER;
    if (ia_mask)
        memset(ia_attr, 0, sizeof *ia_attr);
    if (mask) {
        memset(attr, 0, sizeof *attr);
        strcpy(attr->provider_name, "classic");
        attr->dapl_version_major = DAT_VERSION_MAJOR;
    }
    return DAT_SUCCESS;
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    (void)flags;
    return ia == (DAT_IA_HANDLE)&object ? DAT_SUCCESS : (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INVALID_HANDLE);
}

#ifndef UDAPL_1_2
/* Returns true for one IA only. */
static DAT_RETURN ia_ha_related(DAT_IA_HANDLE ia, const DAT_NAME_PTR name, DAT_BOOLEAN *answer)
{
    if (ia != (DAT_IA_HANDLE)&object)
        return DAT_CLASS_ERROR | DAT_INVALID_HANDLE;
    *answer = !strcmp(name, "loop");
    return DAT_SUCCESS;
}
#endif

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
    (void)params;
    table.device_name = "classic";
    table.ia_open_func = ia_open;
    table.ia_query_func = ia_query;
    table.ia_close_func = ia_close;
#ifndef UDAPL_1_2
    table.ia_ha_related_func = ia_ha_related;
#endif
    dat_registry_add_provider(&table, info);
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    dat_registry_remove_provider(&table, info);
}
