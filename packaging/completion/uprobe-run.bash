# SPDX-License-Identifier: MIT
# bash completion for uprobe-run. Options come from its --help, their values from its answer to a wrong one, functions from its -l,
# events from its --list and --list-events. Nothing of the command line is evaluated.

# A word without its quotes, into `plain`.
_uprobe_run_plain() {
  plain=${1//\\\\/$'\1'}
  plain=${plain//[\\\"\']/}
  plain=${plain//$'\1'/\\}
}

# Fills `words` and `current` with the words before the cursor's and with the cursor's, as the program will see them: bash has broken
# them at = and :. `indices`: where each begins in COMP_WORDS. `head`: the part of the cursor's word that readline keeps.
_uprobe_run_words() {
  local at word plain is_open=
  for ((at = 0; at <= COMP_CWORD; ++at)); do
    word=${COMP_WORDS[at]}
    _uprobe_run_plain "$word"
    if [[ $at -gt 1 && ($word == [=:]* || -n $is_open) ]]; then
      words[${#words[@]} - 1]+=$plain
    else
      words+=("$plain") indices+=("$at")
    fi
    is_open=
    [[ $word == *[=:] ]] && is_open=1
  done
  current=${words[${#words[@]} - 1]}
  unset "words[${#words[@]}-1]"
  [[ $word == [=:]* ]] && plain=${word##*[=:]}
  head=${current%"$plain"}
  [[ $word == [\"\']* ]] && quote=${word:0:1}
}

# Offers whole words that begin as the cursor's: readline gets what belongs after `head`. Any process may have made a name: within
# quotes, where no quoting can be added, one that would end them or be expanded is left out.
_uprobe_run_offer() {
  local candidate rest
  for candidate in "$@"; do
    [[ $candidate == "$current"* ]] || continue
    rest=${candidate#"$head"}
    [[ -n $is_file || $quote != \' || $rest != *[\'[:cntrl:]]* ]] || continue
    [[ -n $is_file || $quote != \" || $rest != *[\$\`\\\"\![:cntrl:]]* ]] || continue
    [[ -n $quote$is_file || $rest != *[!a-zA-Z0-9_@%+=:,./~-]* ]] || printf -v rest %q "$rest"
    COMPREPLY+=("$rest")
  done
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[=:,] ]] || compopt -o nospace 2>/dev/null
}

# _uprobe_run_files BEFORE TYPED: the files whose names begin so, after a part of the word that belongs to no name.
_uprobe_run_files() {
  local files is_file=1
  mapfile -t files < <(compgen -f -- "$2")
  compopt -o filenames 2>/dev/null
  _uprobe_run_offer "${files[@]/#/$1}"
}

# _uprobe_run_functions OBJECT BEGIN: the functions that can be probed by their names.
_uprobe_run_functions() {
  "$tool" -x "$1" "-l$2*" 2>/dev/null | sed -n -e '/ # /d' -e 's/^p\(:[^ ]*\)\? //' -e '/:0x[0-9a-f]*$/d' -e 's/^[^:]*://p'
}

# _uprobe_run_places BEFORE TYPED: [OBJECT:]FUNCTION, alone or after the kernel's "p:EVENT ".
_uprobe_run_places() {
  local before=$1 typed=$2 from=$object found
  if [[ $typed =~ ^[pr](:[^ ]*)?\ +([^ ]*)$ ]]; then
    before+=${typed%"${BASH_REMATCH[2]}"}
    typed=${BASH_REMATCH[2]}
  fi
  if [[ $typed =~ ^([^:]*):($|[^:]) ]]; then  # "::" is part of a name
    from=${BASH_REMATCH[1]}
    before+=$from:
    typed=${typed#*:}
  elif [[ -z $from || $typed =~ ^[./] ]]; then
    compopt -o nospace 2>/dev/null
    _uprobe_run_files "$before" "$typed"
    return
  fi
  mapfile -t found < <(_uprobe_run_functions "$from" "$typed")
  _uprobe_run_offer "${found[@]/#/$before}"
}

# The events of the definitions before the cursor.
_uprobe_run_events() {
  local at definitions=()
  for ((at = 1; at + 1 < ${#words[@]}; ++at)); do
    case ${words[at]} in -p | -r | --probe | --returns-of) definitions+=("${words[at]}" "${words[at + 1]}") ;; esac
  done
  "$tool" ${object:+-x "$object"} --list-events "${definitions[@]}" 2>/dev/null | sed -n 's/^[pr]:\([^ ]*\) .*/\1/p'
}

# _uprobe_run_values OPTION BEFORE TYPED: BEFORE is the part of the same word that stands before the value.
_uprobe_run_values() {
  local option=$1 before=$2 typed=$3 found=()
  case $option in
    -p | --probe | -r | --returns-of | --explain | --lines | --vars)
      _uprobe_run_places "$before" "$typed"
      return ;;
    -x | --exec | --object | -i | --probes-from | -o | --output | --record | --replay | --hist-file)
      _uprobe_run_files "$before" "$typed"
      return ;;
    -P | --pid | --attach)
      [[ $typed == *,* ]] && before+=${typed%,*},
      mapfile -t found < <(cd /proc && printf '%s\n' [1-9]*) ;;
    --control) mapfile -t found < <(pgrep -x 'uprobe-(run|engine)' 2>/dev/null) ;;
    --comm) mapfile -t found < <(cat /proc/[1-9]*/comm 2>/dev/null | sort -u) ;;
    -l | --list) [[ -z $object ]] || mapfile -t found < <(_uprobe_run_functions "$object" "$typed") ;;
    --remove | --disable | --enable)
      [[ -z $session ]] || mapfile -t found < <("$tool" --control "$session" --list 2>/dev/null | sed -n 's/^.:\([^ ]*\) .*/\1/p') ;;
    --trigger)
      if [[ $typed =~ ^(en|dis)able_event: ]]; then
        before+=${BASH_REMATCH[0]}
        mapfile -t found < <(_uprobe_run_events | tr / :)
      else
        found=(traceon traceoff stacktrace snapshot enable_event: disable_event: hist:keys=)
      fi ;;
    --format | --style | --until | --seccomp | --color | --tier | --return)
      mapfile -t found < <("$tool" "$option=?" 2>&1 | sed -n 's/.* is not one of //p' | tr -s ', ' '\n') ;;
  esac
  _uprobe_run_offer "${found[@]/#/$before}"
}

# The options of the help, into `options`; those that take a value, into `takes`.
_uprobe_run_options() {
  local line
  while IFS= read -r line; do
    [[ $line =~ ^\ \ (-[A-Za-z])?[,\ ]\ +(--[a-z-]+)(\[?=)? ]] || continue
    options+=(${BASH_REMATCH[1]:+"${BASH_REMATCH[1]}"} "${BASH_REMATCH[2]}${BASH_REMATCH[3]#[}")
    [[ ${BASH_REMATCH[3]} != = ]] || takes+="${BASH_REMATCH[1]} ${BASH_REMATCH[2]} "
  done < <("$tool" --help 2>/dev/null)
}

_uprobe_run() {
  local words=() indices=() current head quote='' is_file='' tool object='' session='' options=() takes=' --attach ' at word
  _uprobe_run_words
  tool=${words[0]} COMPREPLY=()
  _uprobe_run_options
  for ((at = 1; at < ${#words[@]}; ++at)); do
    word=${words[at]}
    if [[ $word == -- || $word != -* ]]; then  # the program and its own words
      [[ $word == -- ]] && ((++at))
      if declare -F _command_offset > /dev/null && ((at < ${#words[@]})); then
        _command_offset "${indices[at]}"
      elif ((at == ${#words[@]})); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
      else
        _uprobe_run_files '' "$current"
      fi
      return
    fi
    case $word in
      -x | --exec) object=${words[at + 1]} ;;
      --exec=*) object=${word#*=} ;;
      -P | --pid | --attach) object=/proc/${words[at + 1]%%,*}/exe ;;
      --pid=* | --attach=*) object=${word#*=} object=/proc/${object%%,*}/exe ;;
      --control) session=${words[at + 1]} ;;
      --control=*) session=${word#*=} ;;
    esac
    [[ $takes != *" $word "* ]] || ((++at))
  done
  if ((at > ${#words[@]})); then
    _uprobe_run_values "$word" '' "$current"
  elif [[ $current == --*=* ]]; then
    _uprobe_run_values "${current%%=*}" "${current%%=*}=" "${current#*=}"
  elif [[ $current == -l?* ]]; then
    _uprobe_run_values -l -l "${current#-l}"
  elif [[ $current == -* ]]; then
    _uprobe_run_offer "${options[@]}"
  else
    [[ ! $word =~ ^--(dis|en)able$ ]] || _uprobe_run_values "$word" '' "$current"
    [[ -n $session ]] || mapfile -t COMPREPLY < <(compgen -c -- "$current")
  fi
}

complete -F _uprobe_run uprobe-run
