#!/usr/bin/env python3
"""Measures how easy the code is to read, for each revision given (default HEAD): words of Rust comments, persons where a thing is meant,
documentation that begins with a fragment, Markdown sentences over 45 words, circles of imports between the files of a crate, functions
by length, and how many files name one function of the API by hand. Prints one Markdown row per measure (docs/design/clarity.md).
usage: scripts/clarity.py [--circles] [REVISION...]"""
import collections, io, re, statistics, subprocess, sys, tarfile

PERSON = re.compile(r'\b(nobody|somebody|anybody|everybody|who|whom|whoever|mourn\w*|bereaved|befriend\w*)\b', re.I)
FRAGMENT = re.compile(r'^(Of|That|Who|For whom|As|Or|And|Else|There|Till|Until then|After which|Ends that)\b')
FUNCTIONS = ['lmr_sync_rdma_read', 'ep_post_send_with_invalidate', 'srq_post_recv', 'ep_recv_query', 'cno_fd_create']
# Generated text: between these markers.
GENERATED = re.compile(r'BEGIN slots\.txt.*?END slots\.txt', re.S)
# Files that name a function because they implement it, declare it or list it, not because they call it.
CALLERS = re.compile(r'^(docs/|scripts/|tests/c/|tests/bench/|tests/lab/|dat/|dat-tools/|examples/)|\.md$')


def read(revision):
    """Returns path -> text of the revision's files."""
    archive = subprocess.run(['git', 'archive', '--format=tar', revision], capture_output=True, check=True).stdout
    files = {}
    for member in (tar := tarfile.open(fileobj=io.BytesIO(archive))):
        if member.isfile():
            files[member.name] = tar.extractfile(member).read().decode('utf-8', 'replace')
    return files


def comments(files):
    """Returns words of comment, persons, blocks of documentation, and those that begin with a fragment."""
    words = persons = blocks = fragments = 0
    for path, text in files.items():
        previous = False
        for line in text.split('\n') if path.endswith('.rs') else []:
            found = re.match(r'\s*(///?!?|//!)\s?(.*)', line)
            if found:
                words += len(found[2].split())
                persons += len(PERSON.findall(found[2]))
                if found[1] in ('///', '//!') and not previous:
                    blocks += 1
                    fragments += bool(FRAGMENT.match(found[2]))
            previous = bool(found) and found[1] in ('///', '//!')
    return words, persons, blocks, fragments


def long_sentences(files):
    """Counts Markdown sentences over 45 words, outside of code and tables; a list item ends a sentence."""
    count = 0
    for path, text in files.items():
        if not path.endswith('.md'):
            continue
        text = re.sub(r'```.*?```', '\n\n', text, flags=re.S)
        text = re.sub(r'(?m)^\s*[|#<].*$', '\n', text)
        text = re.sub(r'(?m)^\s*([-*]|\d+\.)\s', '\n\n', text)
        for paragraph in re.split(r'\n\s*\n', text):
            count += sum(len(s.split()) > 45 for s in re.split(r'(?<=[.!?])[)"*`]*\s+', paragraph))
    return count


def bare(text):
    """Returns Rust code with comments, strings and character literals blanked, lines kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\\n])\'', re.S)
    return pattern.sub(lambda found: re.sub(r'[^\n]', ' ', found[0]), text)


def function_lengths(text):
    """Returns the lines of each function with a body."""
    code, lengths = bare(text), []
    for found in re.finditer(r'\bfn\s+\w+', code):
        depth, at = 0, found.end()
        while at < len(code) and not (code[at] in '{;' and depth == 0):
            depth += (code[at] in '([') - (code[at] in ')]')
            at += 1
        if at == len(code) or code[at] == ';':
            continue
        end, braces = at + 1, 1
        while end < len(code) and braces:
            braces += (code[end] == '{') - (code[end] == '}')
            end += 1
        lengths.append(code.count('\n', found.start(), end) + 1)
    return lengths


def imports(files, root):
    """Returns file -> files of the same crate that it names by `crate::` or `super::`. Ancestors do not count."""
    modules = {}
    for path in files:
        if path.startswith(root + '/src/') and path.endswith('.rs'):
            parts = path[len(root) + 5:-3].split('/')
            modules[tuple(p for p in parts if p not in ('lib', 'main', 'mod'))] = path
    reexported = {}
    for module, path in modules.items():
        for found in re.finditer(r'pub(?:\([^)]*\))? use (?:self::)?(\w+)::(\{[^}]*\}|\w+)', bare(files[path])):
            child = module + (found[1],)
            if child in modules:
                for name in re.findall(r'\w+', found[2]):
                    reexported[module + (name,)] = child
    graph = {}
    for module, path in modules.items():
        code = re.sub(r'(?s)#\[cfg\((?:all\(loom, )?test\)?\)\]\s*mod \w+ \{.*', '', bare(files[path]))
        targets = set()
        for found in re.finditer(r'\b(crate|super(?:::super)*)((?:::\w+)*)(::\{(?:[^{}]|\{[^{}]*\})*\})?', code):
            base = () if found[1] == 'crate' else module[:-found[1].count('super')] if module else ()
            names = tuple(n for n in found[2].split('::') if n)
            tails = [names + tuple(re.findall(r'\w+', tail)[:2]) for tail in re.split(r',(?![^{]*\})', found[3][3:-1])] if found[3] else [names]
            for tail in tails:
                target = base + tail
                while target and target not in modules and target not in reexported:
                    target = target[:-1]
                target = reexported.get(target, target)
                if target in modules and target != module[:len(target)]:
                    targets.add(target)
        graph[module] = targets
    return graph


def circles(graph):
    """Returns the strongly connected components of more than one file (Tarjan)."""
    index, low, stack, found, counter = {}, {}, [], [], [0]

    def visit(node):
        index[node] = low[node] = counter[0]
        counter[0] += 1
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(['/'.join(part) for part in sorted(group)])

    for node in graph:
        if node not in index:
            visit(node)
    return found


def measure(revision, show):
    """Returns the rows of a revision as (measure, value)."""
    files = read(revision)
    words, persons, blocks, fragments = comments(files)
    rows = [('words of Rust comments', f'{words:,}'),
            ('persons where a thing is meant, per 1,000 of these', f'{1000 * persons / words:.2f}'),
            ('documentation that begins with a fragment', f'{100 * fragments / blocks:.1f} %'),
            ('Markdown sentences over 45 words', str(long_sentences(files)))]
    roots = sorted(path[:-len('/Cargo.toml')] for path in files if path.endswith('/Cargo.toml'))
    groups = [(root, group) for root in roots for group in circles(imports(files, root))]
    rows += [('circles of imports between files', str(len(groups))),
             ('files in these circles', str(sum(len(group) for _, group in groups))),
             ('files in the largest one', str(max([len(group) for _, group in groups] or [0])))]
    if show:
        for root, group in groups:
            print(f'{revision}: {root}: {" ".join(group)}', file=sys.stderr)
    source = {path: text for path, text in files.items() if path.endswith('.rs') and '/src/' in path and not path.startswith('tests/')}
    lengths = sorted(length for text in source.values() for length in function_lengths(text))
    rows += [('functions', f'{len(lengths):,}'), ('lines of the median function', f'{statistics.median(lengths):.0f}'),
             ('functions over 50 lines', str(sum(length > 50 for length in lengths))),
             ('functions over 100 lines', str(sum(length > 100 for length in lengths))),
             ('lines of the longest function', str(lengths[-1]))]
    lines = sorted((text.count('\n') for text in source.values()), reverse=True)
    rows += [('files over 500 lines', str(sum(count > 500 for count in lines))), ('lines of the longest file', str(lines[0]))]
    for name in FUNCTIONS:
        pattern = re.compile(rf'\b(dat_|dat_ib_|DAT_)?({name}|{name.upper()})\b')
        naming = [path for path, text in files.items() if not CALLERS.search(path) and pattern.search(GENERATED.sub('', text))]
        tests = sum(path.startswith('tests/') or '/tests/' in path for path in naming)
        rows.append((f'files by hand that name `{name}`: code, tests', f'{len(naming) - tests}, {tests}'))
    return rows


sys.setrecursionlimit(10000)
show = '--circles' in sys.argv
revisions = [word for word in sys.argv[1:] if not word.startswith('--')] or ['HEAD']
table = [measure(revision, show) for revision in revisions]
print('| measure | ' + ' | '.join(revisions) + ' |\n|---|' + '---:|' * len(revisions))
for rows in zip(*table):
    print(f'| {rows[0][0]} | ' + ' | '.join(value for _, value in rows) + ' |')
