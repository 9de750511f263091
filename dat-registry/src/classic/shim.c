/* The symbols of a registry that classic providers look for in the global scope. A program that links the Rust API statically
 * exports none, so dat-registry loads this object and sets the two pointers before it loads such a provider. */
typedef unsigned (*registry_function)(const void *table, const void *info);

registry_function dat_rs_add_provider, dat_rs_remove_provider;

unsigned dat_registry_add_provider(const void *table, const void *info)
{
    return dat_rs_add_provider(table, info);
}

unsigned dat_registry_remove_provider(const void *table, const void *info)
{
    return dat_rs_remove_provider(table, info);
}

/* The numbers that libdat2 gives out for IAs do not exist here: every IA handle is the provider's own. */
unsigned dats_get_ia_handle(void *ia, void **provider)
{
    *provider = ia;
    return 0;
}
