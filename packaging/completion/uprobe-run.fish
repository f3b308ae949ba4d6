# SPDX-License-Identifier: MIT
# fish completion for uprobe-run. Options come from its --help, their values from its answer to a wrong one, functions from its -l,
# events from its --list and --list-events.

# The values of options before the cursor, by their names.
function __uprobe_run_values_of
    set -l words (commandline -opc)
    for at in (seq 2 (count $words))
        for name in $argv
            test "$words[$at]" = "$name"; and echo $words[(math $at + 1)]
            string replace -f -r -- "^$name=" '' $words[$at]
        end
    end
end

function __uprobe_run_object
    set -l pid (__uprobe_run_values_of -P --pid --attach | string replace -r ',.*' '')[-1]
    set -l file (__uprobe_run_values_of -x --exec)[-1]
    if test -n "$file"
        echo $file
    else if test -n "$pid"
        echo /proc/$pid/exe
    end
end

# The functions of an object, those that can be probed by their names.
function __uprobe_run_functions -a object begin head
    uprobe-run -x $object "-l$begin*" 2>/dev/null | string match -v -r ' # |:0x[0-9a-f]*$' |
        string replace -rf -- '^(p(:\S+)? )?[^:]*:' "$head"
end

# [OBJECT:]FUNCTION, alone or after the kernel's "p:EVENT ".
function __uprobe_run_places
    set -l typed (commandline -ct | string replace -r '^--[a-z-]+=' '' | string unescape)
    set -l head (string match -r '^[pr](?::\S*)? +(?=\S*$)' -- $typed)
    set typed (string sub -s (math (string length -- "$head") + 1) -- "$typed")
    set -l object (__uprobe_run_object)
    # "::" is part of a name
    if set -l parts (string match -r '^([^:]*):((?:[^:].*)?)$' -- $typed)
        __uprobe_run_functions $parts[2] "$parts[3]" "$head$parts[2]:"
    else if test -n "$object"; and not string match -q -r '^[./]' -- $typed
        __uprobe_run_functions $object "$typed" "$head"
    else
        set -l files "$typed"*
        for file in $files
            test -d $file; and echo "$head$file/"; or echo "$head$file:"
        end
    end
end

function __uprobe_run_list
    set -l object (__uprobe_run_object)
    test -n "$object"; and __uprobe_run_functions $object (commandline -ct | string replace -r '^(-l|--list=)' '') $argv[1]
end

# The events of the definitions before the cursor.
function __uprobe_run_events
    set -l words --list-events
    set -l object (__uprobe_run_object)
    test -n "$object"; and set -a words -x $object
    for definition in (__uprobe_run_values_of -p --probe | string unescape)
        set -a words -p $definition
    end
    uprobe-run $words 2>/dev/null | string replace -rf '^[pr]:(\S+)/(\S+) .*' '$1:$2'
end

# The words that an option takes, by its name.
function __uprobe_run_words
    switch $argv[1]
        case probe returns-of explain lines vars
            __uprobe_run_places
        case list
            __uprobe_run_list
        case pid
            set -l head (string match -r '.*,' -- (commandline -ct | string replace -r '^--[a-z]+=' ''))
            __fish_complete_pids | string replace -r '^' -- "$head"
        case control
            pgrep -x 'uprobe-(run|engine)' 2>/dev/null
        case comm
            cat /proc/*/comm 2>/dev/null | sort -u
        case remove disable enable
            set -l session (__uprobe_run_values_of --control)[-1]
            test -n "$session"; and uprobe-run --control $session --list 2>/dev/null | string replace -rf '^.:(\S+) .*' '$1'
        case trigger
            printf '%s\n' traceon traceoff stacktrace snapshot hist:keys= {en,dis}able_event:(__uprobe_run_events)
        case format style until seccomp color tier return
            uprobe-run --$argv[1]='?' 2>&1 | string replace -rf '.* is not one of ' '' | string split ', '
    end
end

set -l with_value --attach
for line in (uprobe-run --help 2>/dev/null)
    set -l parts (string replace -rf '^  (?:-(\w), |    )--([\w-]+)(\[?=)?\S*(?:\s+(\S.*))?$' '$1'\t'$2'\t'$3'\t'$4' -- $line |
        string split \t)
    or continue
    set -l words -c uprobe-run -l $parts[2] -d "$parts[4]"
    test -n "$parts[1]"; and set -a words -s $parts[1]
    # "[=GLOB]" stands in the same word
    if test "$parts[3]" = "="
        set -a words -r
        set -a with_value --$parts[2]
        test -n "$parts[1]"; and set -a with_value -$parts[1]
    end
    if not contains -- $parts[2] exec object probes-from output record replay hist-file
        set -a words -f
        test -n "$parts[3]"; and set -a words -a "(__uprobe_run_words $parts[2])"
    end
    complete $words
end
complete -c uprobe-run -n 'string match -q -r "^-l." -- (commandline -ct)' -f -a '(__uprobe_run_list -l)'
complete -c uprobe-run -n 'not string match -q -- "-*" (commandline -ct)' -x -a "(__fish_complete_subcommand $with_value)"
