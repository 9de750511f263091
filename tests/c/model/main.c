/* Random calls against a model of the API: README.md.
 *
 * usage: model [--seed N] [--runs N] [--steps N] [--processes 1|2] [--rxe] [--trace] IA
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actions.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"
#include "settle.h"

/* Steps between two comparisons of everything. */
#define AUDIT_EVERY 97

uint64_t random_state;

static const struct action {
    void (*act)(int node);
    uint32_t weight;
} actions[] = {
    {create_pz, 2},      {free_pz, 2},    {create_evd, 6},          {free_evd, 4},     {resize_evd, 5},   {replace_cno, 4},
    {switch_evd, 4},     {create_cno, 3}, {post_software_event, 14}, {dequeue, 40},     {wait_for_event, 25}, {free_cno, 1},
    {wait_for_cno, 8},   {set_context, 4}, {create_lmr, 12},         {free_lmr, 6},     {create_rmr, 4},   {free_rmr, 2},
    {bind_rmr, 20},      {create_ep, 14}, {modify_ep, 6},           {disconnect_ep, 6}, {reset_ep, 8},    {free_ep, 4},
    {create_psp, 6},     {free_psp, 3},   {create_rsp, 4},          {free_rsp, 4},     {connect_ep, 22},  {answer_request, 24},
    {post_receive, 60},  {post_request, 100}, {create_srq, 3},      {change_srq, 5},   {post_srq, 30},    {close_ia, 1},
};
#define ACTIONS (sizeof actions / sizeof actions[0])

static void act_at_random(void)
{
    uint32_t all = 0, chosen;
    size_t i;
    for (i = 0; i < ACTIONS; i++)
        all += actions[i].weight;
    chosen = below(all);
    for (i = 0; chosen >= actions[i].weight; i++)
        chosen -= actions[i].weight;
    expect_success();
    actions[i].act((int)below(NODES));
}

/* Opens the IA and creates what most actions need. */
void prepare(int node)
{
    static void (*const first[])(int) = {open_ia, create_pz, create_pz, create_ample_lmrs, create_evd, create_evd, create_rmr, create_rmr,
                                         create_evd, create_evd, create_psp, create_psp, create_ep, create_ep, create_ep};
    size_t i;
    for (i = 0; i < sizeof first / sizeof first[0]; i++) {
        expect_success();
        first[i](node);
    }
}

static void hung(int number)
{
    (void)number;
    fail("%s hangs", function_names[called]);
}

/* Counts what the run has done, so that one that tests nothing is seen. */
static void summarize(void)
{
    int i, completed = 0, connected = 0;
    for (i = 0; i < post_count; i++)
        completed += posts[i].progress == DONE;
    for (i = 0; i < object_count; i++)
        connected += objects[i].kind == EP && objects[i].of.ep.connection && objects[i].of.ep.connection->accepted;
    printf("seed %llu: %d objects, %d endpoints connected at the end, %d posts, %d of them complete\n",
           (unsigned long long)run.seed, object_count, connected, post_count, completed);
}

static void run_seed(void)
{
    int node;
    signal(SIGALRM, hung);
    seed_random(run.seed);
    map_areas();
    start_api();
    for (node = 0; node < NODES; node++)
        prepare(node);
    for (run.step = 0; run.step < run.steps; run.step++) {
        act_at_random();
        if (run.step % AUDIT_EVERY == AUDIT_EVERY - 1) {
            settle();
            audit();
        }
    }
    settle();
    audit();
    for (node = 0; node < NODES; node++) {
        expect_success();
        succeeded(CALL(node, ia_close, ia_of[node]->handle, DAT_CLOSE_ABRUPT_FLAG));
    }
    end_api();
    if (run.trace)
        summarize();
}

static const struct option options[] = {
    {"seed", required_argument, NULL, 's'},      {"runs", required_argument, NULL, 'r'},  {"steps", required_argument, NULL, 'n'},
    {"processes", required_argument, NULL, 'p'}, {"rxe", no_argument, NULL, 'x'},         {"trace", no_argument, NULL, 't'},
    {NULL, 0, NULL, 0},
};

static void usage(void)
{
    fprintf(stderr, "usage: model [--seed N] [--runs N] [--steps N] [--processes 1|2] [--rxe] [--trace] IA\n");
    exit(2);
}

/* Returns the number from `least` to `most` that `text` is. */
static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (end == text || *end || value < least || value > most)
        usage();
    return value;
}

int main(int argc, char **argv)
{
    uint64_t first, last;
    int option, runs = 1, failed = 0;
    run = (struct run){.seed = 1, .steps = 700, .processes = 1};
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 's':
            run.seed = number(optarg, 0, UINT64_MAX);
            break;
        case 'r':
            runs = (int)number(optarg, 1, INT32_MAX);
            break;
        case 'n':
            run.steps = (int)number(optarg, 1, INT32_MAX);
            break;
        case 'p':
            run.processes = (int)number(optarg, 1, 2);
            break;
        case 'x':
            run.rxe = true;
            break;
        case 't':
            run.trace = true;
            break;
        default:
            usage();
        }
    if (optind != argc - 1)
        usage();
    run.ia = argv[optind];
    first = run.seed;
    last = first + (uint64_t)runs - 1;
    for (; run.seed <= last; run.seed++) {
        /* A process of its own: the library begins anew, and may crash. */
        pid_t child = fork();
        int status;
        if (child == 0) {
            run_seed();
            exit(0);
        }
        while (waitpid(child, &status, 0) < 0)
            ;
        if (WIFSIGNALED(status))
            fprintf(stderr, "model: FAIL seed %llu: killed by signal %d\n", (unsigned long long)run.seed, WTERMSIG(status));
        failed += status != 0;
    }
    printf("model: %s %d of %d seeds from %llu\n", failed ? "FAIL" : "PASS", failed ? failed : runs, runs,
           (unsigned long long)first);
    return failed != 0;
}
