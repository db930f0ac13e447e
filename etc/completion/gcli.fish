# Completion of gbatch's commands in fish, under their own names and Slurm's. gcli has the words: see `gcli complete`.

function __gcli_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    for line in (gcli complete fish $words "$typed" 2>/dev/null)
        switch $line
            case ':files*'
                __fish_complete_path (string replace -r '.*=' '' -- $typed)
            case ':dirs*'
                __fish_complete_directories (string replace -r '.*=' '' -- $typed)
            case ':commands*'
                complete -C "$typed"
            case ':users*'
                __fish_complete_users
            case '*'
                echo $line
        end
    end
end

for name in gsubmit gqueue gcancel gacct ginfo gcontrol gshare grun galloc gprio gacctmgr gdiag gstat gseff greport gbcast gattach gcrontab gtrigger
    complete -c $name -f -a '(__gcli_complete)'
end
# Slurm's names only where they are gbatch's.
for name in sbatch squeue scancel sacct sinfo scontrol sshare srun salloc sprio sacctmgr sdiag sstat seff sreport sbcast sattach scrontab strigger
    if string match -q '*/gcli' -- (realpath (command -s $name) 2>/dev/null)
        complete -c $name -f -a '(__gcli_complete)'
    end
end
