#!/usr/bin/env python3
"""Prints the copyright notices and licences of the crates that are linked into what scripts/dist.sh lays out: their licences ask that
copies have them. Where a crate offers MIT beside other licences, MIT is chosen.
usage: scripts/notices.py PACKAGE...      those of this workspace that dist.sh builds"""
import json, os, re, subprocess, sys

NOTICE = re.compile(r'^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)', re.I)
OTHER = re.compile(r'APACHE|UNLICENSE|^COPYING$', re.I)


def linked(roots):
    """Returns the packages of other projects that `roots` link, by name: no compiler plugins, nothing that only builds or tests need."""
    host = re.search(r'^host: (.*)$', subprocess.run(['rustc', '-vV'], capture_output=True, check=True, text=True).stdout, re.M)[1]
    command = ['cargo', 'metadata', '--locked', '--format-version', '1', '--filter-platform', os.environ.get('CARGO_BUILD_TARGET', host)]
    metadata = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    packages = {package['id']: package for package in metadata['packages']}
    nodes = {node['id']: node for node in metadata['resolve']['nodes']}
    wanted, found = [i for i in metadata['workspace_members'] if packages[i]['name'] in roots], set()
    while wanted:
        one = wanted.pop()
        if one in found or any('proc-macro' in target['kind'] for target in packages[one]['targets']):
            continue
        found.add(one)
        wanted += [dep['pkg'] for dep in nodes[one]['deps'] if any(kind['kind'] is None for kind in dep['dep_kinds'])]
    found -= set(metadata['workspace_members'])
    return sorted((packages[i] for i in found), key=lambda package: (package['name'], package['version']))


def notices(package):
    """Returns the texts of a package's licence that hold for us."""
    folder = os.path.dirname(package['manifest_path'])
    names = sorted(name for name in os.listdir(folder) if NOTICE.match(name) and os.path.isfile(os.path.join(folder, name)))
    if any('MIT' in name.upper() for name in names):
        names = [name for name in names if not OTHER.search(name)]
    if not names:
        sys.exit(f'notices: {package["name"]} {package["version"]} has no file with its licence')
    return [open(os.path.join(folder, name), encoding='utf-8').read().strip() for name in names]


def main():
    print('The libraries, the providers and the command have code of these crates in them. Each text is the one of the crates named before it.')
    texts = {}
    for package in linked(sys.argv[1:]):
        for text in notices(package):
            texts.setdefault(text, []).append(f'{package["name"]} {package["version"]} ({package["license"] or "licence below"})')
    for text, crates in texts.items():
        print('', '=' * 78, *crates, '', text, sep='\n')


main()
