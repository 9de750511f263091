#!/bin/bash
# Results of clients.sh as tables. usage: table.sh RESULTS [DOCUMENT [siw]]
#
# RESULTS has lines of pairing, case, verdict, seconds and packets, with tabs between. Without a document the table is for a terminal; in a
# document the lines between `<!-- cases -->` and `<!-- pairings -->` and their `<!-- end -->` are written anew; with siw,
# those after `<!-- siw -->`.
set -uo pipefail
results=$1
cases() { grep -v '^ *\(#\|$\)' "$(dirname "$0")/cases"; }

terminal() {
    awk -F'\t' '
        FNR == NR { if (!($1 in known)) { known[$1]; pairing[++n] = $1 } cell[$1, $2] = $3 " " $4 "s"; ran[$2]; next }
        FNR == 1 { printf "case"; for (i = 1; i <= n; i++) printf "\t%s", pairing[i]; print "" }
        {
            split($0, word, " ")
            if (!(word[1] in ran)) next
            printf "%s", word[1]
            for (i = 1; i <= n; i++) printf "\t%s", (pairing[i], word[1]) in cell ? cell[pairing[i], word[1]] : "-"
            print ""
        }' "$results" <(cases) | column -t -s $'\t'
}

# Each case on DAPL and on each of our providers and engines alone, and the packets rxe0 sent for it.
by_case() {
    echo '| case | client and its options | DAPL | softrxe | ibverbs | user engine, on the host | packets: DAPL, softrxe, ibverbs |'
    echo '|---|---|---|---|---|---|---|'
    awk -F'\t' '
        function verdict(pairing) { return (pairing, name) in cell ? cell[pairing, name] : "–" }
        function packets(pairing) { return sent[pairing, name] != "" && cell[pairing, name] ~ /^pass/ ? sent[pairing, name] : "–" }
        FNR == NR { cell[$1, $2] = $3 == "FAIL" ? "**fails**" : $3; sent[$1, $2] = $5; next }
        {
            split($0, word, " +")
            name = word[1]; kind = word[2]; rest = $0
            sub(/^[^ ]+ +[^ ]+ +[^ ]+ */, "", rest)
            if (kind ~ /^dtest/) rest = kind " " rest
            if (kind == "datagrams") rest = "dtestx " rest
            if (kind == "transfer") { sub(/^[^ ]+ +/, "", rest); rest = "dapltest -T T " rest }
            if (kind == "perf") rest = "dapltest -T P " rest
            if (kind ~ /^limits/) rest = "dapltest -T L " rest (kind == "limits" ? "" : " limit_..., each alone")
            if (kind == "features") { gsub(/:[0-9]+/, "", rest); rest = "dapltest -T F -f " rest }
            if (kind == "quality") rest = "dapltest -T T -R HT, LL, EC, PM: refused " rest
            if (kind == "port") rest = "dapltest -T S, T and Q -n " rest
            if (kind == "quit") rest = "dapltest -T Q"
            if (kind == "killed") { victim = rest; sub(/ .*/, "", victim); sub(/^[^ ]+ /, "", rest); sub(/^T/, "dapltest -T T", rest); rest = rest ", " victim " killed" }
            sub(/ +$/, "", rest)
            printf "| %s | `%s` | %s | %s | %s | %s | %s, %s, %s |\n", name, rest, verdict("debian"), verdict("softrxe"), verdict("ibverbs"), verdict("user"), packets("debian"), packets("softrxe"), packets("ibverbs")
        }' "$results" <(cases)
}

by_pairing() {
    echo '| pairing | cases | passed | not passed |'
    echo '|---|---|---|---|'
    awk -F'\t' '
        !($1 in ran) { pairing[++n] = $1 }
        { ran[$1]++; if ($3 ~ /^pass/) passed[$1]++; else not[$1] = not[$1] (not[$1] == "" ? "" : ", ") $2 }
        END { for (i = 1; i <= n; i++) printf "| `%s` | %d | %d | %s |\n", pairing[i], ran[pairing[i]], passed[pairing[i]], not[pairing[i]] }' "$results"
}

# Each case on siw, over DAPL and over ours.
by_case_on_siw() {
    echo '| case | DAPL | ibverbs |'
    echo '|---|---|---|'
    awk -F'\t' '
        function verdict(pairing) { return (pairing, word[1]) in cell ? cell[pairing, word[1]] : "–" }
        FNR == NR { cell[$1, $2] = $3 == "FAIL" ? "**fails**" : $3; next }
        { split($0, word, " "); printf "| %s | %s | %s |\n", word[1], verdict("debian"), verdict("ibverbs") }' "$results" <(cases)
}

[ $# -ge 2 ] || { terminal; exit; }
new=$(mktemp)
while IFS= read -r line; do
    [ "$line" != '<!-- end -->' ] || skipping=
    [ -n "${skipping:-}" ] || printf '%s\n' "$line"
    case ${3:-}$line in
        'siw<!-- siw -->') by_case_on_siw && skipping=yes ;;
        '<!-- cases -->') by_case && skipping=yes ;;
        '<!-- pairings -->') by_pairing && skipping=yes ;;
    esac
done <"$2" >"$new"
cat "$new" >"$2"
rm -f "$new"
