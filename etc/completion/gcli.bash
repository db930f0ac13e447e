# Completion of gbatch's commands in bash, under their own names and Slurm's. bash-completion loads it by the name of the
# command; it can also be sourced. gcli has the words: see `gcli complete`.

_gcli() {
    # bash splits words at = and : too; the line tells which belong together.
    local line=${COMP_LINE:0:COMP_POINT} words=() word gap i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        gap=${line%%[![:space:]]*}
        line=${line#"$gap"}
        word=${COMP_WORDS[i]}
        if ((i == COMP_CWORD)); then word=$line; fi
        line=${line#"$word"}
        if [[ -z $gap && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    local cur=${words[${#words[@]} - 1]} candidate
    # What stands before the last separator in the word is already there for bash.
    local done=
    if [[ $cur == *[=:]* && $COMP_WORDBREAKS == *=* ]]; then done=${cur%"${cur##*[=:]}"}; fi
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        case $candidate in
        :files) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${cur#"$done"}") ;;
        :dirs) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "${cur#"$done"}") ;;
        :commands) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$cur") ;;
        :users) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -u -- "${cur##*[=,]}") ;;
        *) COMPREPLY+=("${candidate#"$done"}") ;;
        esac
    done < <(gcli complete bash "${words[@]}" 2>/dev/null)
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[=:,] ]]; then compopt -o nospace; fi
}

complete -F _gcli \
    gsubmit gqueue gcancel gacct ginfo gcontrol gshare grun galloc gprio gacctmgr gdiag gstat gseff greport gbcast gattach gcrontab gtrigger
# Slurm's names only where they are gbatch's.
for _gcli_name in sbatch squeue scancel sacct sinfo scontrol sshare srun salloc sprio sacctmgr sdiag sstat seff sreport sbcast sattach scrontab strigger; do
    if [[ $(readlink -f "$(type -P "$_gcli_name")" 2>/dev/null) == */gcli ]]; then complete -F _gcli "$_gcli_name"; fi
done
unset _gcli_name
