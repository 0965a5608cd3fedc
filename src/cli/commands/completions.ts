import { usageError } from "../../base/errors.ts";
import { suggestName } from "../../manifest/problems.ts";
import { type CommandContext, type Invocation, SHELLS } from "../command.ts";

type Shell = (typeof SHELLS)[number];

/** `toolmux completions`: prints the completion script for a shell. */
export function printCompletions(
  { args: [word = ""] }: Invocation,
  { terminal }: CommandContext,
): Promise<number> {
  const shell = SHELLS.find((one) => one === word);
  if (shell === undefined)
    throw usageError(
      `There are completions for ${SHELLS.join(", ")}, not "${word}".${suggestName(word, SHELLS)}`,
    );
  terminal.print(COMPLETION_SCRIPTS[shell].trim());
  return Promise.resolve(0);
}

/**
 * The completion scripts. Each asks `toolmux internal complete WORD …` for everything. Its first line of output is
 * `words`, `file` or `folder`; for `words`, a word and its summary follow on each further line, with a tab between
 * them. No script evaluates these words: what servers list is quoted before it stands on a command line.
 */
export const COMPLETION_SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: `
# bash completion for toolmux
_toolmux() {
  local IFS=$'\\n' cur=\${COMP_WORDS[COMP_CWORD]} kind word summary
  COMPREPLY=()
  # Readline makes --config=FILE three words, the second of which may be the one at the cursor.
  [[ $cur == = ]] && cur=
  {
    read -r kind
    case $kind in
      file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")) ;;
      folder) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")) ;;
      *) while IFS=$'\\t' read -r word summary; do
           [[ $word == "$cur"* ]] && printf -v word %q "$word" && COMPREPLY+=("$word")
         done ;;
    esac
  } < <(toolmux internal complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ \${#COMPREPLY[@]} == 1 && \${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _toolmux toolmux
`,
  zsh: `
#compdef toolmux
_toolmux() {
  local -a lines=("\${(@f)$(toolmux internal complete "\${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  [[ $words[CURRENT] == --*=* ]] && compset -P 1 '*='
  case $lines[1] in
    file) _files; return ;;
    folder) _files -/; return ;;
  esac
  local -a plain shown open
  local line word
  for line in "\${(@)lines[2,-1]}"; do
    word=\${line%%$'\\t'*}
    if [[ $word == *= ]]; then open+=("$word"); continue; fi
    plain+=("$word")
    shown+=("\${line/$'\\t'/  -- }")
  done
  compadd -l -d shown -a plain
  compadd -S '' -a open
}
# Either a folder of $fpath holds this, or it is sourced.
if [[ $funcstack[1] == _toolmux ]]; then _toolmux "$@"; else compdef _toolmux toolmux; fi
`,
  fish: `
# fish completion for toolmux
function __toolmux
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (toolmux internal complete $words[2..] "$current" 2>/dev/null)
    set -l prefix (string match -r -- '^--[^=]*=' "$current")
    set -l rest (string replace -r -- '^--[^=]*=' '' "$current")
    switch "$lines[1]"
        case file
            set lines (__fish_complete_path "$rest")
        case folder
            set lines (__fish_complete_directories "$rest" '')
        case '*'
            set -e lines[1]
    end
    for line in $lines
        echo "$prefix$line"
    end
end
complete -c toolmux -f -a '(__toolmux)'
`,
};
